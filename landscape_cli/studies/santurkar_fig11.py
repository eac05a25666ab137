"""The VGG with ℓ1, ℓ2 and ℓ∞ normalisation: training and landscape."""

from __future__ import annotations

from landscape_cli.studies.landscapes import LandscapeStudy
from landscape_cli.studies.networks import vgg

STUDY = LandscapeStudy(
    name="santurkar-fig11",
    title="ℓp normalisations of the VGG: training and landscape",
    figure="Fig. 11",
    network=vgg,
    norms=("l1", "l2", "linf"),
    against_batch=True,
)
