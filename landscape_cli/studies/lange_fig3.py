"""Dense networks with mini-batches of 60: vanilla, BN, LN and BNP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from landscape_cli.studies.contests import Contest, ContestStudy, Contrast
from landscape_cli.studies.lange import NOTES, PAPER, bn, bnp, dense, ln, vanilla

if TYPE_CHECKING:
    from landscape_cli.studies.workbench import Workbench

MNIST = (
    Contrast("BN and BNP have comparable performance", "BN", "BNP", "final", "comparable"),
    Contrast("BN is slightly faster at the beginning", "BNP", "BN", "early", "higher"),
    Contrast("BNP outperforms BN after the beginning", "BN", "BNP", "final", "higher"),
    Contrast("BN slightly outperforms LN", "LN", "BN", "final", "higher"),
    Contrast("BNP slightly outperforms LN", "LN", "BNP", "final", "higher"),
    Contrast("BN improves over the vanilla network", "vanilla", "BN", "final", "higher"),
    Contrast("BNP improves over the vanilla network", "vanilla", "BNP", "final", "higher"),
    Contrast("LN improves over the vanilla network", "vanilla", "LN", "final", "higher"),
)
CIFAR10 = (
    Contrast("BNP and BN are comparable", "BN", "BNP", "final", "comparable"),
    Contrast("BNP converges slightly faster at the beginning", "BN", "BNP", "early", "higher"),
    Contrast("BN achieves slightly better final accuracy", "BNP", "BN", "final", "higher"),
    Contrast("BNP outperforms the vanilla network", "vanilla", "BNP", "final", "higher"),
    Contrast("BNP outperforms LN", "LN", "BNP", "final", "higher"),
    Contrast("BN outperforms the vanilla network", "vanilla", "BN", "final", "higher"),
    Contrast("BN outperforms LN", "LN", "BN", "final", "higher"),
)
RATES = {"mnist": (0.1, 0.5, 0.5, 0.1), "cifar10": (0.01, 0.5, 0.1, 0.5)}
"""Table 2: of vanilla, BN, BNP and LN."""


def _contests(bench: Workbench) -> list[Contest]:
    return [_contest(bench, "mnist", "left", MNIST), _contest(bench, "cifar10", "right", CIFAR10)]


def _contest(
    bench: Workbench, published: str, side: str, contrasts: tuple[Contrast, ...]
) -> Contest:
    images = bench.images(published)
    plain, batch, preconditioned, layer = RATES[published]
    steps = 30_000 if published == "mnist" else 25_000  # 30 epochs
    return Contest(
        name=f"{published}-60",
        title=f"Fig. 3 {side}: dense network, the learning rates of {published}",
        model=dense(images),
        data=(images.train, images.test),
        methods=(vanilla(plain), bn(bench, batch), ln(layer), bnp(preconditioned)),
        contrasts=contrasts,
        steps=bench.choose(smoke=8, laptop=600, paper=steps),
        batch_size=60,
        source=f"{PAPER}, §5 and Fig. 3 {side}",
    )


STUDY = ContestStudy(
    name="lange-fig3",
    title="Dense networks with mini-batches of 60: vanilla, BN, LN and BNP",
    source=f"{PAPER}, Fig. 3",
    contests=_contests,
    notes=NOTES,
)
