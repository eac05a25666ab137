"""Condition numbers of the Hessian of each unit, before and after preconditioning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from landscape_cli.figures import theme
from landscape_cli.figures.curves import (
    Curve,
    Plot,
    draw_over_training,
    prepared_having,
    spread_over,
)
from landscape_cli.runs import Run

GROUP = "conditioning"
PANELS = (
    (f"{GROUP}/hessian", "κ of the Hessian"),
    (f"{GROUP}/preconditioned", "κ, preconditioned"),
)


def draw_conditioning(runs: Sequence[Run], *, labels: Sequence[str] | None = None) -> go.Figure:
    """Draw median and quartiles over the units of κ, before and after, over training.

    Args:
        runs: those without the measure are left out.
        labels: one per run.

    Reference:
        Lange et al. (2022), Fig. 8.
    """
    plots = []
    for path, title in PANELS:
        curves = []
        for item in prepared_having(runs, labels, path):
            middle, low, high = spread_over(item.at_checkpoints(path))
            curves.append(Curve(item, middle, low=low, high=high))
        plots.append(Plot(title, curves))
    return draw_over_training("Condition numbers over training", runs, plots)


def draw_conditioning_of_units(
    runs: Sequence[Run], *, labels: Sequence[str] | None = None, checkpoint: int = -1
) -> go.Figure:
    """Draw κ of every unit at one checkpoint against κ after preconditioning.

    Below the diagonal the preconditioner helped.

    Args:
        runs: those without the measure are left out.
        labels: one per run.
        checkpoint: index in order of training.
    """
    figure = theme.new_figure("Condition numbers of units, before and after", height=520)
    (before, before_title), (after, after_title) = PANELS
    seen: list[np.ndarray] = []
    for item in prepared_having(runs, labels, before):
        x, y = (item.at_checkpoints(path)[checkpoint] for path in (before, after))
        seen.extend([x, y])
        names = [theme.neutral(name) for name in item.run.labels(f"{GROUP}/unit")]
        figure.add_trace(
            go.Scatter(
                x=theme.compact(x),
                y=theme.compact(y),
                mode="markers",
                marker={"symbol": item.style.symbol, "size": 6, "color": item.style.colour},
                text=names,
                name=item.name,
                showlegend=True,
                hovertemplate="%{text}<br>%{x:.4g} before, %{y:.4g} after",
            )
        )
    _add_diagonal(figure, seen)
    scale = theme.scale_of(*seen)
    theme.name_axis(figure, "x", before_title, scale)
    theme.name_axis(figure, "y", after_title, scale)
    return figure


def _add_diagonal(figure: go.Figure, seen: Sequence[np.ndarray]) -> None:
    values = np.concatenate([*seen, np.empty(0)])
    values = values[np.isfinite(values)]
    if not values.size:
        return
    ends = [float(values.min()), float(values.max())]
    line = {"color": theme.MUTED, "width": 1.2, "dash": "longdashdot"}
    figure.add_trace(go.Scatter(x=ends, y=ends, mode="lines", line=line, name="no change"))
