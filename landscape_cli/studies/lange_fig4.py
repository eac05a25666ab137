"""Small mini-batches, of 6 and of a single example: dense network and CNN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from landscape_cli.studies.contests import Contest, ContestStudy, Contrast, Method, Outcome
from landscape_cli.studies.contract import Claim
from landscape_cli.studies.estimates import mean_over_seeds
from landscape_cli.studies.lange import NOTES, PAPER, bn, bnp, cnn, dense, ln, renorm, vanilla

if TYPE_CHECKING:
    from landscape_cli.studies.workbench import Workbench

UNTRAINED = 0.2
"""Held-out accuracy, twice that of chance, below which a network has not trained."""
POSITIONS = (
    "What a convolution is given of one image is a value per position, so that its statistics are "
    "not those of a single number; a dense layer's are."
)
SIX = (
    Contrast("with batches of 6 BNP outperforms BN", "BN", "BNP", "final", "higher"),
    Contrast("with batches of 6 BNP outperforms vanilla", "vanilla", "BNP", "final", "higher"),
    Contrast("Batch Renorm performs better than BN", "BN", "BN Renorm", "final", "higher"),
    Contrast("LN performs better than BN", "BN", "LN", "final", "higher"),
    Contrast("BNP converges slightly faster than Renorm", "BN Renorm", "BNP", "early", "higher"),
    Contrast(
        "Renorm achieves the final accuracy of BNP", "BNP", "BN Renorm", "final", "comparable"
    ),
)
ONE = (
    Contrast(
        "single examples: BNP converges faster than vanilla", "vanilla", "BNP", "early", "higher"
    ),
    Contrast(
        "single examples: LN converges faster than vanilla", "vanilla", "LN", "early", "higher"
    ),
    Contrast("single examples: BNP ends just below vanilla", "vanilla", "BNP", "final", "lower"),
    Contrast("single examples: LN ends just below vanilla", "vanilla", "LN", "final", "lower"),
)
ONE_CNN = (
    Contrast(
        "CNN, single examples: BNP trains faster than vanilla", "vanilla", "BNP", "early", "higher"
    ),
    Contrast("CNN, single examples: BNP ends slightly higher", "vanilla", "BNP", "final", "higher"),
)


def _contests(bench: Workbench) -> list[Contest]:
    images = bench.images("cifar10")
    data = (images.train, images.test)
    source = f"{PAPER}, §5 and Fig. 4"
    return [
        Contest(
            name="dense-6",
            title="Fig. 4 left: dense network, mini-batches of 6",
            model=dense(images),
            data=data,
            methods=(vanilla(5e-3), bn(bench, 0.05), renorm(bench, 0.05), ln(0.05), bnp(0.05)),
            contrasts=SIX,
            steps=bench.choose(smoke=8, laptop=1_000, paper=83_320),
            batch_size=6,
            source=f"{source} left",
        ),
        Contest(
            name="dense-1",
            title="Fig. 4 right: dense network, single examples",
            model=dense(images),
            data=data,
            methods=(vanilla(5e-4), *_batch_norms(bench, 0.05), ln(0.01), bnp(0.1)),
            contrasts=ONE,
            steps=bench.choose(smoke=8, laptop=2_000, paper=500_000),
            batch_size=1,
            source=f"{source} right",
        ),
        Contest(
            name="cnn-1",
            title="Fig. 4 right: CNN, single examples",
            model=cnn(bench, images),
            data=data,
            methods=(vanilla(1e-3), *_batch_norms(bench, 1e-3), bnp(0.1)),
            contrasts=ONE_CNN,
            steps=bench.choose(smoke=8, laptop=1_000, paper=500_000),
            batch_size=1,
            source=f"{source} right",
        ),
    ]


def _batch_norms(bench: Workbench, lr: float) -> tuple[Method, Method]:
    return bn(bench, lr, may_refuse=True), renorm(bench, lr, may_refuse=True)


def _further(outcomes: Sequence[Outcome]) -> list[Claim]:
    singles = [outcome for outcome in outcomes if outcome.contest.batch_size == 1]
    return [untrained_claim(outcome, label) for outcome in singles for label in ("BN", "BN Renorm")]


def untrained_claim(outcome: Outcome, label: str) -> Claim:
    """Return whether a method does not train: it makes no step, or stays near chance."""
    refusal = outcome.refusals.get(label)
    final = mean_over_seeds([] if refusal else outcome.over(label, "final").tolist())
    return Claim(
        claim=f"{outcome.contest.name.partition('-')[0]}, single examples: {label} does not train",
        source=outcome.contest.source,
        expected=f"no step can be made, or held-out accuracy at the end below {UNTRAINED}",
        observed=f"no step: {refusal}" if refusal else f"accuracy {final}",
        holds=True if refusal else final.below(UNTRAINED),
        interval=None if refusal else final.interval,
        explanation="" if refusal else outcome.divergences((label,)) or _positions(outcome),
    )


def _positions(outcome: Outcome) -> str:
    return POSITIONS if outcome.contest.name.startswith("cnn") else ""


STUDY = ContestStudy(
    name="lange-fig4",
    title="Small mini-batches, of 6 and of a single example: dense network and CNN",
    source=f"{PAPER}, Fig. 4",
    contests=_contests,
    further=_further,
    notes=(
        *NOTES,
        "BN with 4 Things (Summers and Dinneen, 2020) is not among the sample models: its curves "
        "and the statements about it are left out.",
        "No learning rates are published for BN and BN Renorm with single examples, since they do "
        "not train; those of the next larger batches, or of vanilla for the CNN, are tried.",
    ),
)
