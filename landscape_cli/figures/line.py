"""One checkpoint along the step: loss, gradient change, cosine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from landscape_cli.figures import theme
from landscape_cli.figures.series import Drawn, having, prepare
from landscape_cli.runs import MEASURED, Run

PANELS = (
    ("loss", "loss"),
    ("gradient_change", "‖Δg‖₂"),
    ("smoothness", "smoothness"),
    ("gradient_cosine", "cosine with g"),
)


def draw_line(
    runs: Sequence[Run],
    *,
    labels: Sequence[str] | None = None,
    direction: str = "gradient",
    place: float = np.inf,
) -> go.Figure:
    """Draw loss, gradient change, smoothness and cosine against the step multiple.

    Args:
        runs: one or several; those without the direction are left out.
        labels: one per run.
        direction: label on the direction axis.
        place: training step (or index, where steps are not known) of the checkpoint; every run
            shows the one nearest to it, by default the last.

    Reference:
        Santurkar et al. (2018), §3.2, at one training step.
    """
    drawn = having(prepare(runs, labels), direction)
    if not np.isfinite(place):
        place = max((float(item.x[-1]) for item in drawn), default=0.0)
    figure = theme.new_figure(
        f"Along {direction} at one checkpoint", len(PANELS), height=820, vertical_spacing=0.035
    )
    for row, (path, title) in enumerate(PANELS, start=1):
        shown = [_values(item, path, direction, place) for item in drawn]
        for item, values in zip(drawn, shown, strict=True):
            _add(figure, item, place, values, row)
            if path == "loss":
                _add_origin(figure, item, place)
        theme.name_axis(figure, "y", title, theme.scale_of(*shown), row)
    multiples = [item.run["step_multiple"] for item in drawn]
    scale = theme.scale_of(*multiples)
    if multiples and all(_geometric(values) for values in multiples):
        ends = np.concatenate(multiples)
        scale = theme.log_scale(float(ends.min()), float(ends.max()))
    for row in range(1, len(PANELS)):
        theme.name_axis(figure, "x", "", scale, row)
    theme.name_axis(figure, "x", "step multiple", scale, len(PANELS))
    _mark_not_finite(figure, drawn, direction, place)
    return figure


def _values(item: Drawn, path: str, direction: str, place: float) -> np.ndarray:
    return np.asarray(item.along(path, direction)[item.nearest(place)])


def _geometric(multiples: np.ndarray) -> bool:
    """Whether the grid is evenly spaced on a log scale, as log steps are."""
    if len(multiples) < 3 or multiples.min() <= 0:
        return False
    gaps = np.diff(np.log(multiples))
    return bool(np.allclose(gaps, gaps[0], rtol=1e-3))


def _add(figure: go.Figure, item: Drawn, place: float, values: np.ndarray, row: int) -> None:
    figure.add_trace(
        go.Scatter(
            x=theme.compact(item.run["step_multiple"]),
            y=theme.compact(values),
            mode=theme.mode_of(len(values)),
            line=item.style.line(),
            marker={"symbol": item.style.symbol, "size": 6},
            name=item.name_at(place),
            legendgroup=item.name,
            showlegend=row == 1,
            hovertemplate="%{y:.5g} at %{x:.4g}",
        ),
        row=row,
        col=1,
    )


def _add_origin(figure: go.Figure, item: Drawn, place: float) -> None:
    """Draw the loss at the checkpoint itself as a level."""
    multiples = item.run["step_multiple"]
    level = float(item.at_checkpoints("base_loss")[item.nearest(place)])
    if not np.isfinite(level):
        return
    figure.add_trace(
        go.Scatter(
            x=[float(multiples.min()), float(multiples.max())],
            y=[level, level],
            mode="lines",
            line=item.style.line(1.0, "dot"),
            name=f"{item.name}: loss at the checkpoint",
            legendgroup=item.name,
            hovertemplate="%{y:.5g} at the checkpoint",
        ),
        row=1,
        col=1,
    )


def _mark_not_finite(
    figure: go.Figure, drawn: Sequence[Drawn], direction: str, place: float
) -> None:
    """Put a cross at the foot of every panel where a point is not finite."""
    multiples = [
        item.run["step_multiple"][_values(item, "status", direction, place) > MEASURED]
        for item in drawn
    ]
    bad = np.unique(np.concatenate([*multiples, np.empty(0)]))
    if not bad.size:
        return
    for row in range(1, len(PANELS) + 1):
        axis = "" if row == 1 else str(row)
        for multiple in bad:
            figure.add_annotation(
                x=float(np.log10(multiple) if figure.layout.xaxis.type == "log" else multiple),
                y=0,
                xref=f"x{axis}",
                yref=f"y{axis} domain",
                text="×",
                showarrow=False,
                font={"size": 15},
                yanchor="bottom",
                hovertext="not finite",
            )
    marker = {"symbol": "x-thin", "size": 8, "line": {"width": 1.5, "color": theme.INK}}
    figure.add_trace(
        go.Scatter(x=[None], y=[None], mode="markers", marker=marker, name="× not finite"),
        row=1,
        col=1,
    )
