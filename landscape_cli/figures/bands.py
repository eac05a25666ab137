"""Loss range and gradient change over training, as shaded bands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from landscape_cli.figures import theme
from landscape_cli.figures.series import Drawn, having, prepare, segments, training_title
from landscape_cli.runs import MEASURED, Run

NOT_FINITE = "some points not finite"
PANELS = (
    ("loss_range", "loss along the step"),
    ("gradient_predictiveness", "gradient change ‖Δg‖₂"),
)


def draw_bands(
    runs: Sequence[Run], *, labels: Sequence[str] | None = None, direction: str = "gradient"
) -> go.Figure:
    """Draw between which values loss and gradient change vary along the steps of each checkpoint.

    The line in the band of the loss is the loss at the checkpoint itself. A cross on the upper
    edge says that some of the points there were not finite.

    Args:
        runs: one or several; those without the direction are left out.
        labels: one per run.
        direction: label on the direction axis.

    Reference:
        Santurkar et al. (2018), Fig. 4a, 4b and 9a, 9b.
    """
    drawn = having(prepare(runs, labels), direction)
    figure = theme.new_figure(
        f"Loss and gradient change along {direction}", len(PANELS), height=620
    )
    for row, (group, axis_title) in enumerate(PANELS, start=1):
        edges = []
        for item in drawn:
            low, high = _edges(item, group, direction)
            edges.extend([low, high])
            _add_band(figure, item, low, high, row)
            if group == "loss_range":
                _add_base_loss(figure, item, row)
        for item, high in zip(drawn, edges[1::2], strict=True):
            _mark_not_finite(figure, item, high, direction, row)
        theme.name_axis(figure, "y", axis_title, theme.scale_of(*edges), row)
    theme.name_axis(figure, "x", training_title(runs), row=len(PANELS))
    return figure


def _edges(item: Drawn, group: str, direction: str) -> tuple[np.ndarray, np.ndarray]:
    low, high = (item.along(f"{group}/{end}", direction) for end in ("minimum", "maximum"))
    return low, high


def _add_band(figure: go.Figure, item: Drawn, low: np.ndarray, high: np.ndarray, row: int) -> None:
    """Shade every stretch without a gap and draw its edges; a lone checkpoint is a bar."""
    parts = segments(np.isfinite(low) & np.isfinite(high))
    x, gap = item.x, np.array([np.nan])
    outline = [(np.r_[x[p], x[p][::-1], gap], np.r_[high[p], low[p][::-1], gap]) for p in parts]
    edges = [(np.r_[x[p], gap, x[p], gap], np.r_[high[p], gap, low[p], gap]) for p in parts]
    bars = [
        (np.r_[x[p], x[p], gap], np.r_[low[p], high[p], gap])
        for p in parts
        if p.stop - p.start == 1
    ]
    shared = {"name": item.name, "legendgroup": item.name, "mode": "lines"}
    width = 1.2 if len(x) <= theme.MOST_MARKERS else 0.7
    for lines, style in (
        (outline, {"fill": "toself", "fillcolor": item.style.fill(), "line": {"width": 0}}),
        ([*edges, *bars], {"line": item.style.line(width)}),
    ):
        filled = "fill" in style
        figure.add_trace(
            go.Scatter(
                x=theme.compact(np.concatenate([places for places, _ in lines] or [gap])),
                y=theme.compact(np.concatenate([values for _, values in lines] or [gap])),
                hoverinfo="skip" if filled else None,
                hovertemplate=None if filled else "%{y:.4g} at %{x}",
                showlegend=filled and row == 1,
                **shared,
                **style,
            ),
            row=row,
            col=1,
        )


def _add_base_loss(figure: go.Figure, item: Drawn, row: int) -> None:
    figure.add_trace(
        go.Scatter(
            x=theme.compact(item.x),
            y=theme.compact(item.at_checkpoints("base_loss")),
            mode=theme.mode_of(len(item.x)),
            line=item.style.line(1.8),
            marker={"symbol": item.style.symbol, "size": 5},
            name=f"{item.name}: loss at the checkpoint",
            legendgroup=item.name,
            hovertemplate="%{y:.4g} at %{x}",
        ),
        row=row,
        col=1,
    )


def _mark_not_finite(
    figure: go.Figure, item: Drawn, high: np.ndarray, direction: str, row: int
) -> None:
    some = (item.along("status", direction) > MEASURED).any(axis=-1) & np.isfinite(high)
    if not some.any():
        return
    figure.add_trace(
        go.Scatter(
            x=theme.compact(item.x[some]),
            y=theme.compact(high[some]),
            mode="markers",
            marker={"symbol": "x-thin", "size": 8, "line": {"width": 1.5, "color": theme.INK}},
            name=NOT_FINITE,
            legendgroup="not finite",
            showlegend=row == 1 and not any(trace.name == NOT_FINITE for trace in figure.data),
            hovertemplate="some points here are not finite<extra></extra>",
        ),
        row=row,
        col=1,
    )
