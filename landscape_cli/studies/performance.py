"""How well networks train: claims about losses and accuracies, and their figure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from landscape_cli.studies.contract import Claim
from landscape_cli.studies.estimates import Estimate, mean_over_seeds, ratio_over_seeds
from landscape_cli.studies.networks import LABELS, Trainings

if TYPE_CHECKING:
    from landscape_cli.studies.workbench import Trained

WINDOWS = 100
"""Points of a drawn training curve, each a mean over the steps that it stands for."""


def mean_losses(group: Sequence[Trained]) -> list[float]:
    """Return the mean of the finite training losses over all steps, one per seed.

    It is the area under the training curve: the lower, the faster the training.
    """
    return [float(losses[np.isfinite(losses)].mean()) for losses in (t.losses for t in group)]


def speed_ratio(trainings: Trainings, first: str, other: str) -> Estimate:
    """Return the mean training loss of `other` over that of `first`."""
    return ratio_over_seeds(mean_losses(trainings[other]), mean_losses(trainings[first]))


def accuracy_gain(trainings: Trainings, first: str, other: str, column: str) -> Estimate:
    """Return the last accuracy of `other` less that of `first`."""
    before, after = (last_accuracies(trainings[norm], column) for norm in (first, other))
    return mean_over_seeds([b - a for a, b in zip(before, after, strict=True)])


def last_accuracies(group: Sequence[Trained], column: str) -> list[float]:
    """Return the mean of the last twentieth of the finite values of a column, one per seed."""
    return [_last(trained.history[column]) for trained in group]


def _last(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite[-max(1, len(finite) // 20) :].mean()) if finite.size else float("nan")


def divergences(trainings: Trainings) -> str:
    """Return in a sentence which trainings ended in a loss that is not finite; empty if none."""
    counts = {n: sum(t.diverged_at is not None for t in g) for n, g in trainings.items()}
    parts = [f"{LABELS[norm]}: {count}" for norm, count in counts.items() if count]
    return f"Trainings whose loss became infinite: {', '.join(parts)}." if parts else ""


def faster_claim(trainings: Trainings, first: str, other: str, *, claim: str, source: str) -> Claim:
    """Return whether `other` trains faster than `first`."""
    ratio = speed_ratio(trainings, first, other)
    return Claim(
        claim=claim,
        source=source,
        expected=f"mean training loss of {LABELS[other]} over {LABELS[first]} below 1",
        observed=f"ratio {ratio}",
        holds=ratio.below(1.0),
        interval=ratio.interval,
        explanation=divergences({name: trainings[name] for name in (first, other)}),
    )


def comparable_claim(
    trainings: Trainings, first: str, other: str, *, claim: str, source: str
) -> Claim:
    """Return whether `other` trains about as fast as `first`: within a factor of two."""
    ratio = speed_ratio(trainings, first, other)
    return Claim(
        claim=claim,
        source=source,
        expected=f"mean training loss of {LABELS[other]} over {LABELS[first]} from ½ to 2",
        observed=f"ratio {ratio}",
        holds=ratio.within(0.5, 2.0),
        interval=ratio.interval,
        explanation=divergences({name: trainings[name] for name in (first, other)}),
    )


def draw_training(trainings: Trainings, panels: Mapping[str, str]) -> Any:
    """Draw columns of the training history over the steps: median over seeds, and their range.

    Args:
        trainings: by norm.
        panels: title of the axis by column.
    """
    from landscape_cli.figures import theme

    figure = theme.new_figure("Training", len(panels), height=120 + 260 * len(panels))
    for row, (column, title) in enumerate(panels.items(), start=1):
        drawn = []
        for place, (norm, group) in enumerate(trainings.items()):
            steps, values = _curves(group, column)
            drawn.append(values)
            _add_curves(figure, (steps, values), LABELS[norm], theme.style_of(place), row)
        theme.name_axis(figure, "y", title, theme.scale_of(*drawn), row)
    theme.name_axis(figure, "x", "training step", row=len(panels))
    return figure


def _curves(group: Sequence[Trained], column: str) -> tuple[np.ndarray, np.ndarray]:
    """Return steps (N,) and values (seed, N), averaged over windows where there are many."""
    steps = max((t.history["step"] for t in group), key=len)
    table = np.full((len(group), len(steps)), np.nan)
    for row, trained in zip(table, group, strict=True):
        values = trained.history[column]
        row[: len(values)] = values
    known = np.isfinite(table).any(axis=0)
    steps, table = steps[known], table[:, known]
    edges = np.unique(np.linspace(0, len(steps), min(len(steps), WINDOWS) + 1).astype(int))
    parts = [slice(low, high) for low, high in itertools.pairwise(edges)]
    means = [[_finite_mean(row[part]) for part in parts] for row in table]
    return np.array([steps[part].mean() for part in parts]), np.array(means)


def _finite_mean(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else float("nan")


def _add_curves(
    figure: Any, curves: tuple[np.ndarray, np.ndarray], name: str, style: Any, row: int
) -> None:
    import plotly.graph_objects as go

    from landscape_cli.figures import theme

    steps, values = curves
    middle = np.array(
        [np.median(c[np.isfinite(c)]) if np.isfinite(c).any() else np.nan for c in values.T]
    )
    for index, line in enumerate([*values, middle]):
        main = index == len(values)
        figure.add_trace(
            go.Scatter(
                x=theme.compact(steps),
                y=theme.compact(line),
                mode="lines",
                line=style.line(2.0 if main else 0.7),
                opacity=1.0 if main else 0.35,
                name=name,
                legendgroup=name,
                showlegend=main and row == 1,
                hovertemplate="%{y:.4g} at %{x:.0f}" if main else None,
                hoverinfo=None if main else "skip",
            ),
            row=row,
            col=1,
        )
