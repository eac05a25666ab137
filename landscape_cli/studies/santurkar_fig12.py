"""The deep linear network with ℓ1, ℓ2 and ℓ∞ normalisation: training and landscape."""

from __future__ import annotations

from landscape_cli.studies.contract import Claim
from landscape_cli.studies.landscapes import PAPER, LandscapeStudy
from landscape_cli.studies.networks import Runs, Trainings, deep_linear
from landscape_cli.studies.performance import faster_claim


def _l1_beats_batch(trainings: Trainings, runs: Runs) -> list[Claim]:  # noqa: ARG001
    return [
        faster_claim(
            trainings,
            "batch",
            "l1",
            claim="for deep linear networks ℓ1 normalisation performs even better than BatchNorm",
            source=f"{PAPER}, §3.3",
        )
    ]


STUDY = LandscapeStudy(
    name="santurkar-fig12",
    title="ℓp normalisations of the deep linear network: training and landscape",
    figure="Fig. 12",
    network=deep_linear,
    norms=("l1", "l2", "linf"),
    against_batch=True,
    further=_l1_beats_batch,
)
