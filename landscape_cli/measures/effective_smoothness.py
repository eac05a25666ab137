"""The effective β-smoothness β* along a direction (Santurkar et al. 2018, Fig. 4c)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from landscape_cli.errors import SpecError
from landscape_cli.measures.contract import Field
from landscape_cli.points import finite_range

NAME = "effective_smoothness"
DIMS = ("checkpoint", "direction")
CURVATURE = "loss per squared distance"
FIELDS: Mapping[str, Field] = {
    "beta": Field(DIMS, CURVATURE, "largest finite smoothness over the steps, β*"),
    "step_multiple_at_beta": Field(DIMS, "learning rates", "step multiple where β* was reached"),
    "at_smallest_step": Field(
        DIMS, "", "1 if no larger step comes within 1e-6 of β*", dtype="uint8"
    ),
    "saturated": Field(
        DIMS, "", "1 if moreover the gradient changed by half its norm or more", dtype="uint8"
    ),
    "limit": Field(DIMS, CURVATURE, "limit of the smoothness at step 0, the norm of Hd over d"),
    "beta_times_lr": Field(DIMS, "", "β* times the learning rate; 2 is the edge of stability"),
    "one_over_beta": Field(DIMS, "squared distance per loss", "the step size 1/β*"),
}
SAME_SMOOTHNESS = 1e-6
"""Relative difference under which two values of the smoothness count as one."""


@dataclass(frozen=True)
class Peak:
    """Where the smoothness of a line is largest, and whether that says anything.

    Attributes:
        beta: β*; NaN where no point has a smoothness.
        index: the point it was reached at, −1 for none.
        at_smallest_step: whether no larger step comes within 1e-6 of it.
        saturated: whether moreover ‖Δg‖ ≥ ‖g‖/2 there, so that β* is about 1/a.
    """

    beta: float
    index: int
    at_smallest_step: bool
    saturated: bool


def effective_smoothness(gradient_changes: np.ndarray, distances: np.ndarray) -> float:
    """Return the steepest change of the gradient per unit of distance moved.

    β* = maxₖ ‖∇L(θₖ) − ∇L(θ₀)‖₂ / ‖θₖ − θ₀‖₂ over the probed points θₖ. On a quadratic it
    cannot exceed the largest curvature magnitude.

    Args:
        gradient_changes: ‖∇L(θₖ) − ∇L(θ₀)‖₂, shape (K,), loss per parameter distance.
        distances: ‖θₖ − θ₀‖₂, shape (K,), parameter distance, all positive.

    Returns:
        β*, in loss per squared parameter distance; NaN where no ratio is finite.

    Raises:
        SpecError: If a distance is zero, where the ratio is undefined.

    Reference:
        Santurkar et al. (2018), §3.2 and Fig. 4c.

    Example:
        L(θ) = 3θ² has curvature 6 everywhere.

        >>> distances = np.array([0.25, 0.5, 1.0])
        >>> effective_smoothness(6 * distances, distances)
        6.0
    """
    if np.any(distances == 0):
        raise SpecError(
            "the smoothness at distance zero is undefined",
            seen=f"{int(np.sum(distances == 0))} of {len(distances)} distances are zero",
            hint="leave the point θ₀ itself out",
        )
    return finite_range(gradient_changes / distances)[1]


def find_peak(
    points: Mapping[str, np.ndarray], step_sizes: np.ndarray, gradient_norm: float
) -> Peak:
    """Find β* among the points of a line.

    Args:
        points: as `landscape_cli.points.point_arrays` returns them, K points.
        step_sizes: a of every point, shape (K,).
        gradient_norm: ‖g‖₂ at θ₀.
    """
    smoothness, change = points["smoothness"], points["gradient_change"]
    usable = np.isfinite(smoothness) & (points["distance"] > 0)
    if not usable.any():
        return Peak(np.nan, -1, at_smallest_step=False, saturated=False)
    beta = effective_smoothness(change[usable], points["distance"][usable])
    index = int(np.flatnonzero(usable)[np.argmax(smoothness[usable])])
    lengths = np.where(usable, np.abs(step_sizes), np.inf)
    larger = usable & (lengths > lengths.min())
    at_smallest_step = not np.any(smoothness[larger] >= beta * (1 - SAME_SMOOTHNESS))
    saturated = at_smallest_step and bool(change[index] >= gradient_norm / 2)
    return Peak(beta, index, at_smallest_step=at_smallest_step, saturated=saturated)
