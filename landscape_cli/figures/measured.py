"""Sections for the measures that a run has beyond the three of every probe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from landscape_cli.figures import layers
from landscape_cli.figures.activation_smoothness import (
    draw_activation_smoothness,
    draw_activation_smoothness_by_layer,
)
from landscape_cli.figures.activations import draw_histograms, draw_moments, has_histogram
from landscape_cli.figures.conditioning import draw_conditioning, draw_conditioning_of_units
from landscape_cli.figures.covariate_shift import (
    draw_covariate_shift,
    draw_covariate_shift_by_layer,
)
from landscape_cli.figures.document import Panel, Section
from landscape_cli.figures.hessian_spectrum import draw_hessian_spectrum
from landscape_cli.figures.learning_rate_range import draw_learning_rate_range
from landscape_cli.figures.normalisation_bounds import draw_normalisation_bounds
from landscape_cli.figures.plane import draw_contour, draw_surface
from landscape_cli.runs import Run

MOST_LAYERS = 16
"""Layers between which a reader can choose; the file has them all."""

Runs = Sequence[Run]
Labels = Sequence[str]


def build_sections(runs: Runs, labels: Labels) -> list[Section]:
    """Return a section for every measure that one of the runs has."""
    builders: dict[str, Callable[[Runs, Labels], list[Panel]]] = {
        "covariate_shift": _covariate_shift,
        "activation_smoothness": _activation_smoothness,
        "activations": _activations,
        "normalisation_bounds": _normalisation_bounds,
        "conditioning": _conditioning,
        "hessian_spectrum": _hessian_spectrum,
        "learning_rate_range": _learning_rate_range,
        "plane": _planes,
    }
    sections = []
    for group, build in builders.items():
        if any(group in run.groups() for run in runs):
            title = group.replace("_", " ").capitalize()
            sections.append(Section(title, figures=build(runs, labels)))
    return sections


def _by_layer(group: str, runs: Runs, draw: Callable[[str], go.Figure]) -> dict[str, go.Figure]:
    """Return a figure for every layer, or for some spread evenly where there are many."""
    names = layers.layers_of(runs, group)
    chosen = np.linspace(0, len(names) - 1, min(len(names), MOST_LAYERS))
    return {names[place]: draw(names[place]) for place in np.unique(np.round(chosen).astype(int))}


def _is_trajectory(runs: Runs) -> bool:
    return any(len(run["checkpoint"]) > 1 for run in runs)


def _layered(
    group: str,
    runs: Runs,
    draw: tuple[Callable[..., go.Figure], Callable[..., go.Figure]],
    caption: str,
    **options: Any,
) -> list[Panel]:
    over_training, over_layers = draw
    figures = {"all layers, last checkpoint": over_layers(runs, **options)}
    if _is_trajectory(runs):
        figures |= _by_layer(group, runs, lambda layer: over_training(runs, layer=layer, **options))
    return [Panel(figures, caption, "layer", group.replace("_", " ").capitalize())]


def _covariate_shift(runs: Runs, labels: Labels) -> list[Panel]:
    caption = (
        "G is the gradient of a layer, G′ the same after a step of the layers before it alone. "
        "No shift: ‖G − G′‖ = 0, cosine 1."
    )
    draw = (draw_covariate_shift, draw_covariate_shift_by_layer)
    return _layered("covariate_shift", runs, draw, caption, labels=labels)


def _activation_smoothness(runs: Runs, labels: Labels) -> list[Panel]:
    caption = "Along the first direction: β per example in the outputs of a layer, the largest."
    draw = (draw_activation_smoothness, draw_activation_smoothness_by_layer)
    return _layered("activation_smoothness", runs, draw, caption, labels=labels)


def _activations(runs: Runs, labels: Labels) -> list[Panel]:
    moments = _by_layer(
        "activations", runs, lambda layer: draw_moments(runs, labels=labels, layer=layer)
    )
    panels = [
        Panel(moments, "Shaded: one standard deviation.", "input of layer", "Mean and variance")
    ]
    if any(has_histogram(run) for run in runs):
        histograms = _by_layer(
            "activations", runs, lambda layer: draw_histograms(runs, labels=labels, layer=layer)
        )
        caption = "Every column is one checkpoint and adds up to one."
        panels.append(Panel(histograms, caption, "input of layer", "Distribution"))
    return panels


def _normalisation_bounds(runs: Runs, labels: Labels) -> list[Panel]:
    caption = "Median and quartiles over the units. A bound holds where the ratio is at most 1."
    return [Panel(draw_normalisation_bounds(runs, labels=labels), caption)]


def _conditioning(runs: Runs, labels: Labels) -> list[Panel]:
    units = Panel(
        draw_conditioning_of_units(runs, labels=labels),
        "Every point is a unit at the last checkpoint; below the line the preconditioner helped.",
    )
    if not _is_trajectory(runs):
        return [units]
    caption = "Median and quartiles over the units."
    return [Panel(draw_conditioning(runs, labels=labels), caption), units]


def _hessian_spectrum(runs: Runs, labels: Labels) -> list[Panel]:
    return [Panel(draw_hessian_spectrum(runs, labels=labels))]


def _learning_rate_range(runs: Runs, labels: Labels) -> list[Panel]:
    caption = "At the last checkpoint. Crosses diverged, drawn at their last finite loss."
    return [Panel(draw_learning_rate_range(runs, labels=labels), caption)]


def _planes(runs: Runs, labels: Labels) -> list[Panel]:
    panels = []
    for run, label in zip(runs, labels, strict=True):
        if "plane/loss" in run:
            variants = {
                "contours": draw_contour(run, label=label),
                "three dimensions": draw_surface(run, label=label),
            }
            panels.append(Panel(variants, choice="as", title=f"{label}: loss over a plane"))
    return panels
