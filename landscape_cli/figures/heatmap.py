"""Checkpoint × step maps of loss, gradient change and smoothness of one run."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from landscape_cli.figures import theme
from landscape_cli.figures.series import Drawn, prepare, steps_known
from landscape_cli.runs import MEASURED, NOT_MEASURED, Run

PANELS = (("loss", "loss"), ("gradient_change", "‖Δg‖₂"), ("smoothness", "smoothness"))
MOST_TICKS = 6


def draw_heatmap(run: Run, *, label: str | None = None, direction: str = "gradient") -> go.Figure:
    """Draw loss, gradient change and smoothness at every point of a run.

    Points that are not finite are black, points that were not measured are blank (grey).

    Args:
        run: one run.
        label: its name.
        direction: label on the direction axis.
    """
    (item,) = prepare([run], [label or run.label])
    title = f"{item.label}: every point along {direction}"
    figure = theme.new_figure(
        title,
        cols=len(PANELS),
        height=430,
        shared_yaxes=True,
        horizontal_spacing=0.085,
        subplot_titles=[name for _, name in PANELS],
    )
    status = item.along("status", direction).T
    for column, (path, name) in enumerate(PANELS, start=1):
        values = item.along(path, direction).T
        _add_map(figure, np.where(status == NOT_MEASURED, np.nan, values), name, column)
        _add_not_finite(figure, status, values, column)
        _set_ticks(figure, item, column)
    figure.update_yaxes(title_text="step multiple", row=1, col=1)
    _add_keys(figure, status)
    return figure


def _add_map(figure: go.Figure, values: np.ndarray, name: str, column: int) -> None:
    finite = values[np.isfinite(values)]
    if not finite.size:  # plotly has no colours for a map of nothing
        figure.add_trace(go.Scatter(x=[None], y=[None], showlegend=False), row=1, col=column)
        return
    logarithmic = theme.scale_of(finite).kind == "log"
    with np.errstate(divide="ignore", invalid="ignore"):
        shown = np.log10(values) if logarithmic else values
    bar = {
        "thickness": 10,
        "len": 0.9,
        "x": _right_end(figure, column) + 0.004,
        "xanchor": "left",
        "xpad": 0,
        "tickfont": {"size": 12},
        "outlinewidth": 0,
        "nticks": 6,
        **(theme.log_ticks(finite) if logarithmic else {}),
    }
    figure.add_trace(
        go.Heatmap(
            z=theme.compact(shown),
            customdata=theme.compact(values) if logarithmic else None,
            colorscale=theme.SEQUENTIAL,
            colorbar=bar,
            hoverongaps=False,
            name=name,
            hovertemplate="%{customdata:.4g}" if logarithmic else "%{z:.4g}",
        ),
        row=1,
        col=column,
    )


def _right_end(figure: go.Figure, column: int) -> float:
    axis = figure.layout[f"xaxis{column if column > 1 else ''}"]
    return float(axis.domain[1])


def _add_not_finite(figure: go.Figure, status: np.ndarray, values: np.ndarray, column: int) -> None:
    bad = (status > MEASURED) & ~np.isfinite(values)
    if not bad.any():
        return
    colour = theme.NOT_FINITE_COLOUR
    figure.add_trace(
        go.Heatmap(
            z=np.where(bad, np.float32(1), np.float32(np.nan)),
            colorscale=[[0, colour], [1, colour]],
            showscale=False,
            hoverongaps=False,
            hovertemplate="not finite<extra></extra>",
        ),
        row=1,
        col=column,
    )


def _set_ticks(figure: go.Figure, item: Drawn, column: int) -> None:
    places = thinned(len(item.x))
    multiples = item.run["step_multiple"]
    rows = thinned(len(multiples))
    word = "training step" if steps_known([item.run]) else "checkpoint"
    figure.update_xaxes(
        title_text=word,
        tickvals=places.tolist(),
        ticktext=[f"{item.x[place]:.0f}" for place in places],
        showgrid=False,
        type="linear",
        range=[-0.5, len(item.x) - 0.5],
        row=1,
        col=column,
    )
    figure.update_yaxes(
        tickvals=rows.tolist(),
        ticktext=[f"{multiples[row]:.3g}" for row in rows],
        showgrid=False,
        type="linear",
        range=[-0.5, len(multiples) - 0.5],
        row=1,
        col=column,
    )


def thinned(count: int) -> np.ndarray:
    """Return a few of that many places, the first and the last among them."""
    places = np.linspace(0, count - 1, min(count, MOST_TICKS))
    return np.unique(np.round(places).astype(int))


def _add_keys(figure: go.Figure, status: np.ndarray) -> None:
    """Say in the legend what black and grey mean, where they occur."""
    keys = (
        (bool((status > MEASURED).any()), "not finite", theme.NOT_FINITE_COLOUR),
        (bool((status == NOT_MEASURED).any()), "not measured", theme.NOT_MEASURED_COLOUR),
    )
    for present, name, colour in keys:
        if present:
            line = {"width": 1, "color": theme.MUTED}
            marker = {"symbol": "square", "size": 11, "color": colour, "line": line}
            figure.add_trace(
                go.Scatter(x=[None], y=[None], mode="markers", marker=marker, name=name)
            )
    figure.update_layout(
        plot_bgcolor=theme.NOT_MEASURED_COLOUR, showlegend=True, legend={"y": 1.09}
    )
    figure.update_annotations(font_size=theme.FONT_SIZE)
