"""How stable the inputs of layers are over training: moments, and how far they move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from landscape_cli.studies.estimates import Estimate, ratio_over_seeds
from landscape_cli.studies.networks import LABELS, Runs

if TYPE_CHECKING:
    from landscape_cli.figures.document import Panel
    from landscape_cli.runs import Run

MEASURE = "activations"


def instability(run: Run, layers: list[str], *, apart: int | None = None) -> float:
    """Return how far the moments of layers' inputs move from one checkpoint to the next.

    The median over units, layers and pairs of successive checkpoints of |Δmean|/σ + |Δ ln σ|,
    with σ the unit's deviation at the earlier one: how far the centre moves in units of the
    width, and by which factor the width changes. Units are taken one by one, as the paper samples
    them: over a layer, shifts in opposite directions would cancel. The median, since a unit that
    is almost constant moves by any number of its widths.

    Args:
        run: with the measure `activations`.
        layers: that are looked at.
        apart: only of checkpoints that are so many training steps apart.
    """
    places = [run.labels(f"{MEASURE}/layer").index(layer) for layer in layers]
    mean = run[f"{MEASURE}/unit_mean"][:, places]
    with np.errstate(divide="ignore", invalid="ignore"):
        deviation = np.sqrt(run[f"{MEASURE}/unit_variance"][:, places])
        moved = np.abs(np.diff(mean, axis=0)) / deviation[:-1]
        widened = np.abs(np.diff(np.log(deviation), axis=0))
    changes = moved + widened
    if apart is not None:
        changes = changes[np.diff(run["training_step"]) == apart]
    finite = changes[np.isfinite(changes)]
    return float(np.median(finite)) if finite.size else float("nan")


def instability_ratio(runs: Runs, first: str, other: str, *, apart: int | None = None) -> Estimate:
    """Return the instability of `other` over that of `first`, over the layers that both have.

    These are the convolutional and dense layers but the first, whose input is the data.
    """
    shared = common_layers(runs)[1:]
    first_values, other_values = (
        [instability(run, shared, apart=apart) for run in runs[norm]] for norm in (first, other)
    )
    return ratio_over_seeds(other_values, first_values)


def common_layers(runs: Runs, group: str = MEASURE) -> list[str]:
    """Return the layers that the runs of every norm have, in order of first use."""
    named = [run.labels(f"{group}/layer") for kind in runs.values() for run in kind]
    return [layer for layer in named[0] if all(layer in labels for labels in named)]


def first_batch(data: str, size: int) -> tuple[Any, Any]:
    """Return the first samples of a data set as one batch, so that a seed decides noise alone."""
    from torch.utils.data import default_collate

    from landscape_cli.adapters.building import build_data

    samples: Any = build_data(data)
    inputs, targets = default_collate([samples[place] for place in range(size)])
    return inputs, targets


def join_checkpoints(runs: list[Run]) -> Run:
    """Return runs of one checkpoint each as one run along the trajectory."""
    from landscape_cli.runs import Run, Variable

    first = runs[0]
    joined = dict(first.variables)
    for path, one in first.variables.items():
        if "checkpoint" in one.dims:
            axis = one.dims.index("checkpoint")
            values = np.concatenate([run[path] for run in runs], axis=axis)
            joined[path] = Variable(one.dims, values, one.unit, one.meaning)
    return Run(joined, dict(first.attributes), first.source)


def histogram_panels(runs: Runs) -> list[Panel]:
    """Return histograms and moments of the inputs of a few layers, for the first seed."""
    from landscape_cli.figures.activations import draw_histograms, draw_moments
    from landscape_cli.figures.document import Panel

    shared = common_layers(runs)[1:]
    shown = [shared[place] for place in sorted({0, len(shared) // 2, len(shared) - 1})]
    firsts, labels = [kind[0] for kind in runs.values()], [LABELS[norm] for norm in runs]

    def by_layer(draw: Any) -> dict[str, Any]:
        return {layer: draw(firsts, labels=labels, layer=layer) for layer in shown}

    return [
        Panel(
            by_layer(draw_histograms),
            "Every column adds up to one.",
            "layer",
            "Distributions of the inputs of a layer over training, seed 0",
        ),
        Panel(
            by_layer(draw_moments),
            "",
            "layer",
            "Mean and variance of the inputs of a layer over training, seed 0",
        ),
    ]
