"""The range of the loss along a direction (Santurkar et al. 2018, Fig. 4a)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from landscape_cli.measures.contract import Field
from landscape_cli.points import finite_range

NAME = "loss_range"
DIMS = ("checkpoint", "direction")
FIELDS: Mapping[str, Field] = {
    "minimum": Field(DIMS, "loss", "smallest finite loss over the steps"),
    "maximum": Field(DIMS, "loss", "largest finite loss over the steps"),
    "not_finite": Field(DIMS, "", "measured steps whose loss is not finite", "int64"),
}


def loss_range(losses: np.ndarray) -> dict[str, float | int]:
    """Return minimum and maximum of the finite losses, and how many are not finite.

    Args:
        losses: L(θₖ) of the measured points on a line, shape (K,).

    Returns:
        The three fields of the measure; the ends are NaN where no loss is finite.

    Reference:
        Santurkar et al. (2018), §3.2 and Fig. 4a.

    Example:
        >>> loss_range(np.array([0.5, 0.25, np.inf]))
        {'minimum': 0.25, 'maximum': 0.5, 'not_finite': 1}
    """
    return dict(zip(FIELDS, finite_range(losses), strict=True))
