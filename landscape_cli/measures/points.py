"""What follows from the columns of a line: the point arrays and the three basic measures."""

from __future__ import annotations

import numpy as np

from landscape_cli.errors import SpecError
from landscape_cli.runs import GRADIENT_NOT_FINITE, LOSS_NOT_FINITE, MEASURED

SAME_SMOOTHNESS = 1e-6
"""Relative difference under which two values of the smoothness count as one."""

Arrays = dict[str, np.ndarray]


def point_arrays(columns: np.ndarray, gradient_norm: float) -> Arrays:
    """Return what the file keeps of the points on a line.

    Args:
        columns: float64 of shape (K, 5), see `landscape_cli.engine.strategy.COLUMNS`.
        gradient_norm: ‖g‖₂ at θ₀.

    Returns:
        ``loss``, ``gradient_change``, ``gradient_cosine``, ``distance``, ``smoothness`` as
        float64 and ``status`` as uint8, all of shape (K,). The smoothness is NaN where nothing
        moved. Non-finite values stay as they are.
    """
    loss, squared, change_squared, product, distance_squared = np.asarray(columns).T
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        change, distance = np.sqrt(change_squared), np.sqrt(distance_squared)
        cosine = np.clip(product / (np.sqrt(squared) * gradient_norm), -1.0, 1.0)
        smoothness = np.where(distance > 0, change / distance, np.nan)
    status = np.full(len(loss), MEASURED, dtype=np.uint8)
    status[~np.isfinite(change_squared)] = GRADIENT_NOT_FINITE
    status[~np.isfinite(loss)] = LOSS_NOT_FINITE
    return {
        "loss": loss,
        "gradient_change": change,
        "gradient_cosine": cosine,
        "distance": distance,
        "smoothness": smoothness,
        "status": status,
    }


def finite_range(values: np.ndarray) -> tuple[float, float, int]:
    """Return minimum and maximum over the finite values, NaN without any, and how many are not.

    Example:
        >>> finite_range(np.array([2.0, np.inf, 1.0]))
        (1.0, 2.0, 1)
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.nan, np.nan, len(values)
    return float(finite.min()), float(finite.max()), len(values) - len(finite)


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


def smoothness_summary(points: Arrays, step_sizes: np.ndarray, gradient_norm: float) -> Arrays:
    """Return β*, where it was reached, and whether it says anything about the network.

    Args:
        points: as `point_arrays` returns them, K points.
        step_sizes: a of every point, shape (K,).
        gradient_norm: ‖g‖₂ at θ₀.

    Returns:
        ``beta`` (float64); ``index`` of the point it was reached at (int64, −1 for none);
        ``at_smallest_step`` (uint8), 1 if no larger step comes within 1e-6 of it; ``saturated``
        (uint8), 1 if moreover ‖Δg‖ ≥ ‖g‖/2 there: then β* is about 1/a and reflects the grid.
    """
    usable = (points["distance"] > 0) & np.isfinite(points["smoothness"])
    if not usable.any():
        return _summary(np.nan, -1, at_smallest=False, saturated=False)
    beta = effective_smoothness(points["gradient_change"][usable], points["distance"][usable])
    index = int(np.flatnonzero(usable)[np.argmax(points["smoothness"][usable])])
    lengths = np.where(usable, np.abs(step_sizes), np.inf)
    larger = usable & (lengths > lengths.min())
    rivals = points["smoothness"][larger]
    at_smallest = not np.any(rivals >= beta * (1 - SAME_SMOOTHNESS))
    saturated = at_smallest and points["gradient_change"][index] >= gradient_norm / 2
    return _summary(beta, index, at_smallest=at_smallest, saturated=bool(saturated))


def _summary(beta: float, index: int, *, at_smallest: bool, saturated: bool) -> Arrays:
    return {
        "beta": np.float64(beta),  # type: ignore[dict-item]
        "index": np.int64(index),  # type: ignore[dict-item]
        "at_smallest_step": np.uint8(at_smallest),  # type: ignore[dict-item]
        "saturated": np.uint8(saturated),  # type: ignore[dict-item]
    }
