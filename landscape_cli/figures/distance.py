"""Gradient change against the distance moved, checkpoint by checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from landscape_cli.figures import theme
from landscape_cli.figures.series import Drawn, having, places_of, prepare, steps_known
from landscape_cli.runs import Run

MOST_CHECKPOINTS = 24
"""Checkpoints that the slider offers, spread evenly over those there are."""


def draw_distance(
    runs: Sequence[Run], *, labels: Sequence[str] | None = None, direction: str = "gradient"
) -> go.Figure:
    """Draw ‖∇L(θ) − ∇L(θ₀)‖₂ against ‖θ − θ₀‖₂; a slider goes through the checkpoints.

    Every run shows the checkpoint that is nearest in training to the one on the slider. Axes stay
    as they are, so that checkpoints can be compared. A straight line through the origin would be
    a quadratic loss.

    Args:
        runs: one or several; those without the direction are left out.
        labels: one per run.
        direction: label on the direction axis.

    Reference:
        Santurkar et al. (2018), Fig. 10.
    """
    drawn = having(prepare(runs, labels), direction)
    figure = theme.new_figure(f"Gradient change against distance along {direction}", height=480)
    places = places_of(drawn, MOST_CHECKPOINTS)
    shown = len(places) // 2
    for position, place in enumerate(places):
        for item in drawn:
            _add_curve(figure, item, place, direction, visible=position == shown)
    changes = [item.along("gradient_change", direction) for item in drawn]
    distances = [item.along("distance", direction) for item in drawn]
    scale = theme.scale_of(*_moved(changes))
    lengths = np.concatenate([*_moved(distances), np.empty(0)])
    across = scale
    if scale.kind == "log" and lengths.size:
        across = theme.log_scale(float(lengths.min()), float(lengths.max()))
    _set_axis(figure, "x", "distance moved ‖θ − θ₀‖₂", distances, across)
    _set_axis(figure, "y", "gradient change ‖Δg‖₂", changes, scale)
    if len(places) > 1:
        word = "training step" if steps_known(runs) else "checkpoint"
        _add_slider(figure, places, shown, len(drawn), word)
    return figure


def _add_curve(
    figure: go.Figure, item: Drawn, place: float, direction: str, *, visible: bool
) -> None:
    nearest = item.nearest(place)
    distance = item.along("distance", direction)[nearest]
    order = np.argsort(distance, kind="stable")
    change = item.along("gradient_change", direction)[nearest]
    figure.add_trace(
        go.Scatter(
            x=theme.compact(distance[order]),
            y=theme.compact(change[order]),
            mode=theme.mode_of(len(distance)),
            line=item.style.line(),
            marker={"symbol": item.style.symbol, "size": 6},
            name=item.name_at(place),
            visible=visible,
            showlegend=True,
            hovertemplate="‖Δg‖ %{y:.4g}<br>distance %{x:.4g}",
        )
    )


def _moved(values: list[np.ndarray]) -> list[np.ndarray]:
    """Return what is finite and not zero: the point θ₀ itself has no place on a log scale."""
    return [array[np.isfinite(array) & (array != 0)] for array in values]


def _set_axis(
    figure: go.Figure, axis: str, title: str, values: list[np.ndarray], scale: theme.Scale
) -> None:
    theme.name_axis(figure, axis, title, scale)
    finite = np.concatenate([v[np.isfinite(v)] for v in values] or [np.empty(0)])
    if scale.kind == "log":
        finite = finite[finite > 0]
    if finite.size:
        update = figure.update_xaxes if axis == "x" else figure.update_yaxes
        update(range=_padded(float(finite.min()), float(finite.max()), scale.kind))


def _padded(low: float, high: float, scale: str) -> list[float]:
    ends = np.log10([low, high]) if scale == "log" else np.array([min(low, 0.0), high])
    margin = 0.04 * (ends[1] - ends[0]) or 0.5
    return [float(ends[0] - margin * (ends[0] != 0 or scale == "log")), float(ends[1] + margin)]


def _add_slider(figure: go.Figure, places: np.ndarray, shown: int, runs: int, word: str) -> None:
    steps = [
        {
            "method": "restyle",
            "args": [{"visible": np.repeat(np.arange(len(places)) == index, runs).tolist()}],
            "label": f"{place:.0f}",
        }
        for index, place in enumerate(places)
    ]
    figure.update_layout(
        sliders=[
            {
                "active": shown,
                "steps": steps,
                "currentvalue": {"prefix": f"{word} ", "font": {"size": theme.FONT_SIZE}},
                "font": {"size": 12},
                "pad": {"t": 52, "b": 8},
                "x": 0,
                "len": 1,
                "ticklen": 4,
            }
        ],
    )
