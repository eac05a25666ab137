"""Held-out accuracy and training loss of several methods, as Lange et al. draw them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from landscape_cli.figures.document import Table
    from landscape_cli.figures.theme import Style
    from landscape_cli.studies.contests import Outcome


def draw_contest(outcome: Outcome) -> go.Figure:
    """Draw means over the seeds with their ranges, accuracy above and loss below."""
    from landscape_cli.figures import theme

    figure = theme.new_figure(outcome.contest.title, 2, height=620)
    losses = []
    for place, label in enumerate(outcome.trainings):
        style = theme.style_of(place)
        _add(figure, (outcome, outcome.accuracies(label)), label, style, 1)
        losses.append(outcome.losses(label))
        _add(figure, (outcome, losses[-1]), label, style, 2)
    theme.name_axis(figure, "y", "held-out accuracy", row=1)
    theme.name_axis(figure, "y", "training loss", theme.scale_of(*losses), row=2)
    theme.name_axis(figure, "x", "training step", row=2)
    return figure


def _add(
    figure: go.Figure, drawn: tuple[Outcome, np.ndarray], label: str, style: Style, row: int
) -> None:
    import plotly.graph_objects as go

    from landscape_cli.figures import theme

    outcome, values = drawn
    usable = np.isfinite(values).all(axis=0)
    steps, values = outcome.contest.evaluated[usable], values[:, usable]
    common: dict[str, Any] = {"legendgroup": label, "name": theme.neutral(label)}
    figure.add_trace(
        go.Scatter(
            x=theme.compact(np.r_[steps, steps[::-1]]),
            y=theme.compact(np.r_[values.max(axis=0), values.min(axis=0)[::-1]]),
            mode="lines",
            fill="toself",
            fillcolor=style.fill(0.13),
            line={"width": 0},
            showlegend=False,
            hoverinfo="skip",
            **common,
        ),
        row=row,
        col=1,
    )
    figure.add_trace(
        go.Scatter(
            x=theme.compact(steps),
            y=theme.compact(values.mean(axis=0)),
            mode="lines+markers",
            line=style.line(),
            marker={"symbol": style.symbol, "size": 5},
            showlegend=row == 1,
            hovertemplate="%{y:.4g} at %{x:.0f}",
            **common,
        ),
        row=row,
        col=1,
    )


def table_of(outcome: Outcome) -> Table:
    """Return the methods with their settings and what they reached."""
    from landscape_cli.figures.document import Table
    from landscape_cli.studies.estimates import mean_over_seeds

    contest = outcome.contest
    rows = [
        (
            method.label,
            method.optimizer,
            method.lr,
            str(mean_over_seeds(outcome.over(method.label, "early").tolist())),
            str(mean_over_seeds(outcome.over(method.label, "final").tolist())),
            sum(trained.diverged_at is not None for trained in outcome.trainings[method.label]),
        )
        for method in contest.methods
        if method.label in outcome.trainings
    ]
    columns = ("method", "optimizer", "learning rate", "early", "final", "not finite")
    caption = (
        f"{contest.model}; batches of {contest.batch_size}, {contest.steps} steps. Held-out "
        "accuracy over the first quarter and the last fifth of the training; the last column "
        "counts the trainings that ended in a loss that is not finite."
    )
    return Table(columns, rows, caption)
