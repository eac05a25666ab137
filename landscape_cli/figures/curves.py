"""Curves over training or over layers, with bands where a curve sums up many numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from landscape_cli.figures import theme
from landscape_cli.figures.series import Drawn, prepare, segments, training_title
from landscape_cli.runs import Run


@dataclass(frozen=True)
class Curve:
    """One line of a panel.

    Attributes:
        item: the run it is of.
        values: shape (N,).
        name: what is added to the run's label, empty for nothing.
        low: lower edge of a band, shape (N,), or None.
        high: upper edge.
        dash: instead of the run's own.
    """

    item: Drawn
    values: np.ndarray
    name: str = ""
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    dash: str | None = None

    @property
    def title(self) -> str:
        """What the legend says."""
        return f"{self.item.name}: {self.name}" if self.name else self.item.name


@dataclass(frozen=True)
class Plot:
    """One panel.

    Attributes:
        title: of the vertical axis.
        curves: its lines.
        level: a horizontal line to compare with, None for none.
    """

    title: str
    curves: Sequence[Curve]
    level: float | None = None


def spread_over(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return median and quartiles over the last axis, of finite values, NaN without any."""
    rows = [row[np.isfinite(row)] for row in np.asarray(values, dtype=np.float64)]
    quantiles = [
        np.quantile(row, [0.5, 0.25, 0.75]) if row.size else np.full(3, np.nan) for row in rows
    ]
    middle, low, high = np.array(quantiles).reshape(-1, 3).T
    return middle, low, high


def draw_over_training(title: str, runs: Sequence[Run], plots: Sequence[Plot]) -> go.Figure:
    """Draw panels whose curves have one number per checkpoint, in order of training."""
    figure = _draw(title, plots, [curve.item.x for plot in plots for curve in plot.curves])
    theme.name_axis(figure, "x", training_title(runs), row=len(plots))
    return figure


def draw_over_labels(title: str, names: Sequence[str], plots: Sequence[Plot]) -> go.Figure:
    """Draw panels whose curves have one number per label, in the order of the labels."""
    places = np.arange(len(names), dtype=np.float64)
    figure = _draw(title, plots, [places[: len(c.values)] for plot in plots for c in plot.curves])
    shown = np.unique(np.round(np.linspace(0, len(names) - 1, min(len(names), 16))).astype(int))
    texts = [theme.neutral(names[place], 22) for place in shown]
    figure.update_xaxes(tickvals=shown.tolist(), ticktext=texts, tickangle=-35)
    return figure


def _draw(title: str, plots: Sequence[Plot], places: Sequence[np.ndarray]) -> go.Figure:
    figure = theme.new_figure(title, len(plots), height=120 + 250 * len(plots))
    remaining = iter(places)
    named: set[str] = set()
    for row, plot in enumerate(plots, start=1):
        for curve in plot.curves:
            x = next(remaining)
            _add_band(figure, curve, x, row)
            _add_curve(figure, curve, x, row, shown=curve.title not in named)
            named.add(curve.title)
        parts = [
            part
            for curve in plot.curves
            for part in (curve.values, curve.low, curve.high)
            if part is not None
        ]
        levels = [] if plot.level is None else [np.array([plot.level])]
        theme.name_axis(figure, "y", plot.title, theme.scale_of(*parts, *levels), row)
        if plot.level is not None:
            line = {"color": theme.MUTED, "width": 1.2, "dash": "longdashdot"}
            figure.add_hline(y=plot.level, line=line, row=row, col=1)
    return figure


def _add_curve(figure: go.Figure, curve: Curve, x: np.ndarray, row: int, *, shown: bool) -> None:
    style = curve.item.style
    figure.add_trace(
        go.Scatter(
            x=theme.compact(x),
            y=theme.compact(curve.values),
            mode=theme.mode_of(len(x)),
            line=style.line(1.8 if len(x) <= theme.MOST_MARKERS else 1.1, curve.dash),
            marker={"symbol": style.symbol, "size": 6},
            name=curve.title,
            legendgroup=curve.title,
            showlegend=shown,
            hovertemplate="%{y:.4g} at %{x}",
        ),
        row=row,
        col=1,
    )


def _add_band(figure: go.Figure, curve: Curve, x: np.ndarray, row: int) -> None:
    if curve.low is None or curve.high is None:
        return
    low, high = curve.low, curve.high
    gap = np.array([np.nan])
    parts = segments(np.isfinite(low) & np.isfinite(high))
    if not parts:
        return
    figure.add_trace(
        go.Scatter(
            x=theme.compact(np.concatenate([np.r_[x[p], x[p][::-1], gap] for p in parts])),
            y=theme.compact(np.concatenate([np.r_[high[p], low[p][::-1], gap] for p in parts])),
            mode="lines",
            fill="toself",
            fillcolor=curve.item.style.fill(0.13),
            line={"width": 0},
            legendgroup=curve.title,
            showlegend=False,
            hoverinfo="skip",
        ),
        row=row,
        col=1,
    )


def prepared_having(runs: Sequence[Run], labels: Sequence[str] | None, path: str) -> list[Drawn]:
    """Return the runs that have a variable, styled by their place among all."""
    return [item for item in prepare(runs, labels) if path in item.run]
