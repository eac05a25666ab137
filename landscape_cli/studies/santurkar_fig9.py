"""The optimisation landscape of the deep linear network, with and without BatchNorm."""

from __future__ import annotations

from landscape_cli.studies.landscapes import LandscapeStudy
from landscape_cli.studies.networks import deep_linear

STUDY = LandscapeStudy(
    name="santurkar-fig9",
    title="Optimisation landscape of the 25-layer deep linear network",
    figure="Fig. 9",
    network=deep_linear,
)
