"""The 5-layer CNN with mini-batches of 128 and of 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from landscape_cli.studies.contests import Contest, ContestStudy, Contrast, Method
from landscape_cli.studies.lange import NOTES, PAPER, bn, bnp, cnn, renorm, vanilla

if TYPE_CHECKING:
    from landscape_cli.studies.workbench import Workbench

ADAM, SGD = "vanilla, Adam", "vanilla, SGD"
LARGE = (
    Contrast("with batches of 128 BN and BNP are comparable", "BN", "BNP", "final", "comparable"),
    Contrast("BNP converges slightly slower than BN", "BN", "BNP", "early", "lower"),
    Contrast("BN outperforms the vanilla network with Adam", ADAM, "BN", "final", "higher"),
    Contrast("BNP outperforms the vanilla network with Adam", ADAM, "BNP", "final", "higher"),
    Contrast("BN outperforms the vanilla network with SGD", SGD, "BN", "final", "higher"),
    Contrast("BNP outperforms the vanilla network with SGD", SGD, "BNP", "final", "higher"),
)
SMALL = (
    Contrast("with batches of 2 BNP significantly outperforms BN", "BN", "BNP", "final", "higher"),
    Contrast("BNP significantly outperforms Batch Renorm", "BN Renorm", "BNP", "final", "higher"),
    Contrast("BN underperforms the vanilla network", "vanilla", "BN", "final", "lower"),
    Contrast("BN underperforms Batch Renorm", "BN Renorm", "BN", "final", "lower"),
)


def _contests(bench: Workbench) -> list[Contest]:
    images = bench.images("cifar10")
    data = (images.train, images.test)
    source = f"{PAPER}, §5 and Fig. 5"
    plain = (Method(ADAM, 0.1, optimizer="adam"), Method(SGD, 0.1))
    return [
        Contest(
            name="cnn-128",
            title="Fig. 5 left: CNN, mini-batches of 128",
            model=cnn(bench, images),
            data=data,
            methods=(*plain, bn(bench, 0.1), bnp(0.1)),
            contrasts=LARGE,
            steps=bench.choose(smoke=8, laptop=200, paper=11_700),
            batch_size=128,
            source=f"{source} left",
        ),
        Contest(
            name="cnn-2",
            title="Fig. 5 right: CNN, mini-batches of 2",
            model=cnn(bench, images),
            data=data,
            methods=(vanilla(1e-3), bn(bench, 1e-3), renorm(bench, 0.01), bnp(0.01)),
            contrasts=SMALL,
            steps=bench.choose(smoke=8, laptop=1_000, paper=250_000),
            batch_size=2,
            source=f"{source} right",
        ),
    ]


STUDY = ContestStudy(
    name="lange-fig5",
    title="The 5-layer CNN with mini-batches of 128 and of 2",
    source=f"{PAPER}, Fig. 5",
    contests=_contests,
    notes=(
        *NOTES,
        "With mini-batches of 128 the text has the vanilla network trained by Adam and Table 3 has "
        "its learning rate as 0.1, which is large for Adam. Both readings are trained: Adam and "
        "gradient descent, at 0.1 each.",
        "BN with 4 Things (Summers and Dinneen, 2020) is not among the sample models: its curves "
        "and the statements about it are left out.",
    ),
)
