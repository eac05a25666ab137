"""Curves with one line per seed and their median, for studies without a training axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import plotly.graph_objects as go


def draw_over_seeds(
    title: str, across: tuple[str, np.ndarray], up: tuple[str, Mapping[str, np.ndarray]]
) -> go.Figure:
    """Draw groups of lines: every seed thinly, the median over the seeds boldly.

    Args:
        title: what it shows.
        across: title and values of the horizontal axis, shape (N,).
        up: title of the vertical axis, and values by group, shape (seed, N).
    """
    import plotly.graph_objects as go

    from landscape_cli.figures import theme

    figure = theme.new_figure(title, height=440)
    name_x, x = across
    name_y, groups = up
    for place, (label, values) in enumerate(groups.items()):
        style = theme.style_of(place)
        known = np.where(np.isfinite(values).all(axis=0), values, np.nan)
        for index, line in enumerate([*values, np.median(known, axis=0)]):
            main = index == len(values)
            figure.add_trace(
                go.Scatter(
                    x=theme.compact(x),
                    y=theme.compact(line),
                    mode="lines+markers" if main else "lines",
                    line=style.line(2.0 if main else 0.7),
                    marker={"symbol": style.symbol, "size": 6},
                    opacity=1.0 if main else 0.35,
                    name=theme.neutral(label),
                    legendgroup=label,
                    showlegend=main,
                    hovertemplate="%{y:.4g} at %{x:.4g}",
                )
            )
    theme.name_axis(figure, "x", name_x, theme.scale_of(x))
    theme.name_axis(figure, "y", name_y, theme.scale_of(*groups.values()))
    return figure
