"""Smoothness of the loss in the activations of each layer."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from landscape_cli.figures import layers
from landscape_cli.runs import Run

PANELS = (
    ("activation_smoothness/beta", "β in activation space"),
    ("activation_smoothness/quadratic_form", "∇ᵀH∇ in activations"),
)


def draw_activation_smoothness(
    runs: Sequence[Run], *, labels: Sequence[str] | None = None, layer: str
) -> go.Figure:
    """Draw β and the quadratic form of one layer over training, along the first direction.

    Args:
        runs: those without the measure or the layer are left out.
        labels: one per run.
        layer: label on the layer axis.

    Reference:
        Flaherty (2019); Santurkar et al. (2018), Thm 4.2.
    """
    title = f"Smoothness in the activations of {layer}"
    return layers.draw_layer(title, runs, PANELS, labels=labels, layer=layer)


def draw_activation_smoothness_by_layer(
    runs: Sequence[Run], *, labels: Sequence[str] | None = None, checkpoint: int = -1
) -> go.Figure:
    """Draw β and the quadratic form of every layer at one checkpoint.

    Args:
        runs: those without the measure are left out.
        labels: one per run.
        checkpoint: index in order of training.
    """
    title = "Smoothness in activations, by layer"
    return layers.draw_layers(title, runs, PANELS, labels=labels, checkpoint=checkpoint)
