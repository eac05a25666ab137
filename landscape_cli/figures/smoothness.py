"""β* over training, with its limit, and β*·lr with the edge of stability."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from landscape_cli.figures import theme
from landscape_cli.figures.series import Drawn, having, prepare, training_title
from landscape_cli.runs import Run

GROUP = "effective_smoothness"
EDGE_OF_STABILITY = 2.0


def draw_smoothness(
    runs: Sequence[Run], *, labels: Sequence[str] | None = None, direction: str = "gradient"
) -> go.Figure:
    """Draw β* with its limit for small steps, and below it β*·lr with the line at 2.

    Hollow points are saturated: β* reflects the smallest step there rather than the network. The
    thin dotted line is the limit ‖Hd‖/‖d‖.

    Args:
        runs: one or several; those without the direction are left out.
        labels: one per run.
        direction: label on the direction axis.

    Reference:
        Santurkar et al. (2018), Fig. 4c and 9c; Cohen et al. (2021) on the edge of stability.
    """
    drawn = having(prepare(runs, labels), direction)
    figure = theme.new_figure(f"Effective smoothness along {direction}", 2, height=620)
    values: list[np.ndarray] = []
    for item in drawn:
        beta, limit = (item.along(f"{GROUP}/{name}", direction) for name in ("beta", "limit"))
        values.extend([beta, limit])
        _add_line(figure, item, beta, direction, 1)
        _add_limit(figure, item, limit)
    products = [item.along(f"{GROUP}/beta_times_lr", direction) for item in drawn]
    for item, product in zip(drawn, products, strict=True):
        _add_line(figure, item, product, direction, 2)
    if any(np.isfinite(product).any() for product in products):
        _add_edge(figure)
    theme.name_axis(figure, "y", "β*", theme.scale_of(*values), 1)
    edge = np.array([EDGE_OF_STABILITY])
    theme.name_axis(figure, "y", "β*·lr", theme.scale_of(*products, edge), 2)
    theme.name_axis(figure, "x", training_title(runs), row=2)
    return figure


def _add_line(figure: go.Figure, item: Drawn, values: np.ndarray, direction: str, row: int) -> None:
    shared = {"name": item.name, "legendgroup": item.name}
    figure.add_trace(
        go.Scatter(
            x=theme.compact(item.x),
            y=theme.compact(values),
            mode=theme.mode_of(len(item.x)),
            line=item.style.line(1.6 if len(item.x) <= theme.MOST_MARKERS else 1.1),
            marker={"symbol": item.style.symbol, "size": 7},
            showlegend=row == 1,
            hovertemplate="%{y:.4g} at %{x}",
            **shared,
        ),
        row=row,
        col=1,
    )
    saturated = item.along(f"{GROUP}/saturated", direction) > 0
    if saturated.any():
        _add_hollow(figure, item, np.where(saturated, values, np.nan), row)


def _add_hollow(figure: go.Figure, item: Drawn, values: np.ndarray, row: int) -> None:
    shown = np.isfinite(values)
    figure.add_trace(
        go.Scatter(
            x=theme.compact(item.x[shown]),
            y=theme.compact(values[shown]),
            mode="markers",
            marker={
                "symbol": item.style.symbol,
                "size": 7,
                "color": "#ffffff",
                "line": {"color": item.style.colour, "width": 1.5},
            },
            name=f"{item.name}: saturated",
            legendgroup=item.name,
            showlegend=row == 1,
            hovertemplate="%{y:.4g} at %{x}<br>saturated: reflects the step grid",
        ),
        row=row,
        col=1,
    )


def _add_limit(figure: go.Figure, item: Drawn, limit: np.ndarray) -> None:
    if not np.isfinite(limit).any():
        return
    figure.add_trace(
        go.Scatter(
            x=theme.compact(item.x),
            y=theme.compact(limit),
            mode="lines" if len(item.x) > 1 else "markers",
            line=item.style.line(1.2, "dot"),
            marker={
                "symbol": "line-ew",
                "size": 14,
                "line": {"width": 2, "color": item.style.colour},
            },
            name=f"{item.name}: limit ‖Hd‖/‖d‖",
            legendgroup=item.name,
            hovertemplate="limit %{y:.4g} at %{x}",
        ),
        row=1,
        col=1,
    )


def _add_edge(figure: go.Figure) -> None:
    figure.add_hline(
        y=EDGE_OF_STABILITY,
        line={"color": theme.MUTED, "width": 1.4, "dash": "longdashdot"},
        name="2, edge of stability",
        showlegend=True,
        row=2,
        col=1,
    )
