"""What the file keeps of the points on a line, from the columns that a strategy gives."""

from __future__ import annotations

import numpy as np

from landscape_cli.runs import GRADIENT_NOT_FINITE, LOSS_NOT_FINITE, MEASURED

POINT_FIELDS = ("loss", "gradient_change", "gradient_cosine", "distance", "smoothness", "status")


def point_arrays(columns: np.ndarray, gradient_norm: float) -> dict[str, np.ndarray]:
    """Return the point arrays of a line.

    Args:
        columns: L, ‖∇L‖², ‖∇L − g‖², ⟨∇L, g⟩ and ‖θ(a) − θ₀‖² of every point, float64 of shape
            (K, 5); NaN in the gradient's columns where it was not wanted.
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
