"""The range of the gradient's change along a direction (Santurkar et al. 2018, Fig. 4b)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from landscape_cli.measures.contract import Field
from landscape_cli.points import finite_range

NAME = "gradient_predictiveness"
DIMS = ("checkpoint", "direction")
FIELDS: Mapping[str, Field] = {
    "minimum": Field(DIMS, "loss per distance", "smallest finite gradient change over the steps"),
    "maximum": Field(DIMS, "loss per distance", "largest finite gradient change over the steps"),
    "not_finite": Field(DIMS, "", "measured steps whose gradient is not finite", "int64"),
}


def gradient_predictiveness(gradient_changes: np.ndarray) -> dict[str, float | int]:
    """Return minimum and maximum of the finite gradient changes, and how many are not finite.

    Args:
        gradient_changes: ‖∇L(θₖ) − ∇L(θ₀)‖₂ of the measured points on a line, shape (K,).

    Returns:
        The three fields of the measure; the ends are NaN where no change is finite.

    Reference:
        Santurkar et al. (2018), §3.2 and Fig. 4b.

    Example:
        >>> gradient_predictiveness(np.array([0.5, 0.25]))
        {'minimum': 0.25, 'maximum': 0.5, 'not_finite': 0}
    """
    return dict(zip(FIELDS, finite_range(gradient_changes), strict=True))
