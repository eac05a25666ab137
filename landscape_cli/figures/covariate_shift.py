"""Internal covariate shift: how a layer's gradient changes when the layers before it move."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from landscape_cli.figures import layers
from landscape_cli.runs import Run

PANELS = (
    ("covariate_shift/l2", "‖G − G′‖₂"),
    ("covariate_shift/cosine", "cosine of G and G′"),
)


def draw_covariate_shift(
    runs: Sequence[Run], *, labels: Sequence[str] | None = None, layer: str
) -> go.Figure:
    """Draw the shift of one layer over training: ‖G − G′‖₂ and the cosine of G and G′.

    Args:
        runs: those without the measure or the layer are left out.
        labels: one per run.
        layer: label on the layer axis.

    Reference:
        Santurkar et al. (2018), Def. 2.1, Fig. 3 and 6.
    """
    title = f"Internal covariate shift of {layer}"
    return layers.draw_layer(title, runs, PANELS, labels=labels, layer=layer)


def draw_covariate_shift_by_layer(
    runs: Sequence[Run], *, labels: Sequence[str] | None = None, checkpoint: int = -1
) -> go.Figure:
    """Draw the shift of every layer at one checkpoint, layers in the order of their first use.

    Args:
        runs: those without the measure are left out.
        labels: one per run.
        checkpoint: index in order of training.
    """
    title = "Internal covariate shift by layer"
    return layers.draw_layers(title, runs, PANELS, labels=labels, checkpoint=checkpoint)
