"""Both sides of the bounds that a BatchNorm layer puts on gradient and Hessian."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from landscape_cli.figures.curves import (
    Curve,
    Plot,
    draw_over_training,
    prepared_having,
    spread_over,
)
from landscape_cli.runs import Run

GROUP = "normalisation_bounds"
PANELS = (("lipschitz", "Thm 4.1: left ÷ right"), ("smoothness", "Thm 4.2: left ÷ right"))


def draw_normalisation_bounds(
    runs: Sequence[Run], *, labels: Sequence[str] | None = None
) -> go.Figure:
    """Draw left over right side of Thm 4.1 and 4.2 over training: median, quartiles over units.

    A bound holds where the ratio is at most 1. Units where the right side is zero are left out.

    Args:
        runs: those without the measure are left out.
        labels: one per run.

    Reference:
        Santurkar et al. (2018), Thm 4.1 and 4.2.
    """
    plots = []
    for name, title in PANELS:
        curves = []
        for item in prepared_having(runs, labels, f"{GROUP}/{name}_left"):
            left, right = (
                item.at_checkpoints(f"{GROUP}/{name}_{side}") for side in ("left", "right")
            )
            ratio = np.divide(left, right, out=np.full_like(left, np.nan), where=right != 0)
            middle, low, high = spread_over(ratio)
            curves.append(Curve(item, middle, low=low, high=high))
        plots.append(Plot(title, curves, level=1.0))
    return draw_over_training("Bounds of batch normalisation", runs, plots)
