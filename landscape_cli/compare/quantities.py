"""What is held against each other: five numbers per checkpoint and direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from landscape_cli.runs import MEASURED, NOT_MEASURED, Run

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Quantity:
    """A number that a run has at every checkpoint along every direction; lower is smoother.

    Attributes:
        name: key in the JSON, and what `quantity` looks up.
        title: what it is called in texts.
        unit: unit of the number.
        meaning: one line.
        values: from a run to an array of shape (checkpoint, direction).
        on_grid: whether it reflects the step grid where β* is saturated.
    """

    name: str
    title: str
    unit: str
    meaning: str
    values: Callable[[Run], np.ndarray]
    on_grid: bool = False


def _loss_range(run: Run) -> np.ndarray:
    return np.asarray(run["loss_range/maximum"] - run["loss_range/minimum"])


QUANTITIES = (
    Quantity(
        "loss_range", "loss range", "loss", "largest less smallest loss over the steps", _loss_range
    ),
    Quantity(
        "gradient_change",
        "gradient change",
        "loss per distance",
        "largest ‖∇L(θ(a)) − ∇L(θ₀)‖₂ over the steps",
        lambda run: run["gradient_predictiveness/maximum"],
    ),
    Quantity(
        "beta",
        "β*",
        "loss per squared distance",
        "largest gradient change over distance, over the steps",
        lambda run: run["effective_smoothness/beta"],
        on_grid=True,
    ),
    Quantity(
        "limit",
        "smoothness limit ‖Hd‖/‖d‖",
        "loss per squared distance",
        "what the smoothness tends to as the step goes to 0",
        lambda run: run["effective_smoothness/limit"],
    ),
    Quantity(
        "beta_times_lr",
        "β*·lr",
        "",
        "β* times the training step size; 2 is the edge of stability",
        lambda run: run["effective_smoothness/beta_times_lr"],
        on_grid=True,
    ),
)


@dataclass(frozen=True)
class Blemishes:
    """What makes the numbers of a run along one direction doubtful, as shares from 0 to 1.

    Attributes:
        saturated: of the checkpoints, where β* reflects the grid rather than the network.
        at_smallest_step: of the checkpoints, where β* is reached at the smallest step alone.
        not_finite: of the measured points, whose loss or gradient is not finite.
        below_noise_floor: of the measured points, whose gradient change may be rounding.
        not_measured: of all points.
    """

    saturated: float
    at_smallest_step: float
    not_finite: float
    below_noise_floor: float
    not_measured: float

    @classmethod
    def of(cls, run: Run, direction: int, checkpoints: np.ndarray) -> Blemishes:
        """Count them over the given checkpoints of a run."""
        status = run["status"][checkpoints, direction]
        measured = status != NOT_MEASURED
        below = _below_noise_floor(run, direction, checkpoints)
        smooth = np.isfinite(run["effective_smoothness/beta"][checkpoints, direction])
        saturated = run["effective_smoothness/saturated"][checkpoints, direction] > 0
        at_smallest = run["effective_smoothness/at_smallest_step"][checkpoints, direction] > 0
        return cls(
            saturated=_share(saturated & smooth, smooth),
            at_smallest_step=_share(at_smallest & smooth, smooth),
            not_finite=_share(status > MEASURED, measured),
            below_noise_floor=_share(below & measured, measured),
            not_measured=_share(~measured, np.ones_like(measured)),
        )


def _below_noise_floor(run: Run, direction: int, checkpoints: np.ndarray) -> np.ndarray:
    floor = run["noise_floor"][checkpoints, None]
    return np.asarray(run["gradient_change"][checkpoints, direction] <= floor)


def _share(some: np.ndarray, among: np.ndarray) -> float:
    return float(some.sum() / among.sum()) if among.any() else 0.0
