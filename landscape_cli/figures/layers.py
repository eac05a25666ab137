"""Numbers per layer: one layer over training, or all layers at one checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from landscape_cli.figures.curves import Curve, Plot, draw_over_labels, draw_over_training
from landscape_cli.figures.series import Drawn, prepare
from landscape_cli.runs import Run

Panels = Sequence[tuple[str, str]]
"""Variables, by path, and the titles of their axes."""


def layers_of(runs: Sequence[Run], group: str) -> list[str]:
    """Return the layers that the runs have of a measure, in order of first appearance."""
    found = [run.labels(f"{group}/layer") for run in runs if f"{group}/layer" in run]
    return list(dict.fromkeys(name for names in found for name in names))


def draw_layer(
    title: str, runs: Sequence[Run], panels: Panels, *, labels: Sequence[str] | None, layer: str
) -> go.Figure:
    """Draw variables of one layer over training; runs without the layer are left out."""
    group = panels[0][0].split("/")[0]
    drawn = [item for item in prepare(runs, labels) if layer in layers_of([item.run], group)]
    plots = []
    for path, axis_title in panels:
        curves = [
            Curve(item, by_layer(item, path)[:, layers_of([item.run], group).index(layer)])
            for item in drawn
            if path in item.run
        ]
        plots.append(Plot(axis_title, curves))
    return draw_over_training(title, runs, plots)


def draw_layers(
    title: str,
    runs: Sequence[Run],
    panels: Panels,
    *,
    labels: Sequence[str] | None,
    checkpoint: int,
) -> go.Figure:
    """Draw variables of every layer at one checkpoint.

    Layers of different runs stand side by side by their place, named as in the run with most.
    """
    group = panels[0][0].split("/")[0]
    drawn = prepare(runs, labels)
    names = max((layers_of([item.run], group) for item in drawn), key=len)
    plots = [
        Plot(
            axis_title,
            [
                Curve(item, by_layer(item, path)[checkpoint])
                for item in drawn
                if path in item.run and len(item.x)
            ],
        )
        for path, axis_title in panels
    ]
    return draw_over_labels(title, names, plots)


def by_layer(item: Drawn, path: str) -> np.ndarray:
    """Return a variable as (checkpoint, layer), of the first direction where it has directions."""
    values = item.at_checkpoints(path)
    return values[:, 0] if "direction" in item.run.variables[path].dims else values
