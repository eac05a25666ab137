"""How the inputs of a layer are distributed over training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from landscape_cli.figures import layers, theme
from landscape_cli.figures.curves import Curve, Plot, draw_over_training
from landscape_cli.figures.heatmap import thinned
from landscape_cli.figures.series import Drawn, prepare, training_title
from landscape_cli.runs import Run

GROUP = "activations"
HISTOGRAM = f"{GROUP}/histogram"
EDGES = tuple(
    f"{GROUP}/{name}" for name in ("bin_edges", "histogram_edges", "edges", "bin_edge", "edge")
)


def draw_moments(
    runs: Sequence[Run], *, labels: Sequence[str] | None = None, layer: str
) -> go.Figure:
    """Draw mean ± standard deviation of a layer's input over training, and the variance.

    Args:
        runs: those without the measure or the layer are left out.
        labels: one per run.
        layer: label on the layer axis.

    Reference:
        Santurkar et al. (2018), Fig. 1c.
    """
    means, variances = [], []
    for item in _having(runs, labels, layer):
        place = layers.layers_of([item.run], GROUP).index(layer)
        mean, variance = (
            layers.by_layer(item, f"{GROUP}/{name}")[:, place] for name in ("mean", "variance")
        )
        deviation = np.sqrt(variance)
        means.append(Curve(item, mean, low=mean - deviation, high=mean + deviation))
        variances.append(Curve(item, variance))
    plots = [Plot("mean ± deviation", means), Plot("variance", variances)]
    return draw_over_training(f"Input of {layer}", runs, plots)


def draw_histograms(
    runs: Sequence[Run], *, labels: Sequence[str] | None = None, layer: str
) -> go.Figure:
    """Draw histograms of a layer's input over training: a column of colours per checkpoint.

    Every column adds up to one, so that checkpoints can be compared. Runs stand side by side and
    share the colours.

    Args:
        runs: those without histograms or the layer are left out.
        labels: one per run.
        layer: label on the layer axis.

    Reference:
        Santurkar et al. (2018), Fig. 1c, 2 and 7.
    """
    drawn = [item for item in _having(runs, labels, layer) if has_histogram(item.run)]
    figure = theme.new_figure(
        f"Distribution of the input of {layer}",
        cols=max(1, len(drawn)),
        height=440,
        shared_yaxes=True,
        horizontal_spacing=0.03,
        subplot_titles=[item.name for item in drawn] or None,
    )
    for column, item in enumerate(drawn, start=1):
        _add_histogram(figure, item, layer, column)
        places = thinned(len(item.x))
        figure.update_xaxes(
            title_text=training_title(runs),
            tickvals=places.tolist(),
            ticktext=[f"{item.x[place]:.0f}" for place in places],
            showgrid=False,
            row=1,
            col=column,
        )
    figure.update_yaxes(showgrid=False)
    figure.update_yaxes(title_text="value", row=1, col=1)
    figure.update_annotations(font_size=theme.FONT_SIZE)
    bar = {"title": {"text": "share"}, "thickness": 12, "outlinewidth": 0}
    figure.update_layout(coloraxis={"colorscale": theme.SEQUENTIAL, "colorbar": bar})
    return figure


def has_histogram(run: Run) -> bool:
    """Whether a run keeps histograms and where their bins lie."""
    return HISTOGRAM in run and any(path in run for path in EDGES)


def _having(runs: Sequence[Run], labels: Sequence[str] | None, layer: str) -> list[Drawn]:
    return [item for item in prepare(runs, labels) if layer in layers.layers_of([item.run], GROUP)]


def _add_histogram(figure: go.Figure, item: Drawn, layer: str, column: int) -> None:
    place = layers.layers_of([item.run], GROUP).index(layer)
    counts = np.asarray(item.at_checkpoints(HISTOGRAM)[:, place], dtype=np.float64)
    totals = counts.sum(axis=-1, keepdims=True)
    shares = np.divide(counts, totals, out=np.full_like(counts, np.nan), where=totals > 0)
    if not np.isfinite(shares).any():  # plotly has no colours for a map of nothing
        figure.add_trace(go.Scatter(x=[None], y=[None], showlegend=False), row=1, col=column)
        return
    path = next(path for path in EDGES if path in item.run)
    edges = _edges_of(item.run, path, place)
    filled = np.flatnonzero(np.nansum(shares, axis=0))
    reach = slice(filled[0], filled[-1] + 1)  # bins go far beyond what any layer fills
    shares, edges = shares[:, reach], edges[filled[0] : filled[-1] + 2]
    figure.add_trace(
        go.Heatmap(
            z=theme.compact(shares.T),
            y=theme.compact((edges[1:] + edges[:-1]) / 2),
            coloraxis="coloraxis",
            name=item.name,
            hovertemplate="%{z:.3g} near %{y:.3g}",
        ),
        row=1,
        col=column,
    )


def _edges_of(run: Run, path: str, layer: int) -> np.ndarray:
    """Return the edges of a layer's bins, whether all layers share them or not."""
    dims = run.variables[path].dims
    values = run[path]
    for name, index in (("checkpoint", 0), ("layer", layer)):
        if name in dims:
            values = np.take(values, index, axis=dims.index(name))
            dims = tuple(dim for dim in dims if dim != name)
    return np.asarray(values, dtype=np.float64)
