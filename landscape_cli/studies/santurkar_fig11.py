"""The VGG with ℓ1, ℓ2 and ℓ∞ normalisation: training, landscape and activations."""

from __future__ import annotations

from landscape_cli.studies.contract import Claim
from landscape_cli.studies.distributions import MEASURE, instability_ratio
from landscape_cli.studies.landscapes import PAPER, LandscapeStudy
from landscape_cli.studies.networks import LABELS, Runs, Trainings, vgg

NORMS = ("l1", "l2", "linf")


def _larger_shift(trainings: Trainings, runs: Runs) -> list[Claim]:  # noqa: ARG001
    """Return whether layer inputs are less stable than without normalisation."""
    claims = []
    for norm in NORMS:
        ratio = instability_ratio(runs, "none", norm)
        short = LABELS[norm].partition(" + ")[2]
        claims.append(
            Claim(
                claim=f"{short} leads to a larger distributional shift than the unnormalised "
                "network has",
                source=f"{PAPER}, §3.3 and Fig. 14",
                expected="change of the inputs' mean and deviation between checkpoints, over that "
                "without, above 1",
                observed=f"ratio {ratio}",
                holds=ratio.above(1.0),
                interval=ratio.interval,
            )
        )
    return claims


STUDY = LandscapeStudy(
    name="santurkar-fig11",
    title="ℓp normalisations of the VGG: training, landscape and activations",
    figure="Fig. 11",
    network=vgg,
    norms=NORMS,
    against_batch=True,
    measures=(MEASURE,),
    further=_larger_shift,
)
