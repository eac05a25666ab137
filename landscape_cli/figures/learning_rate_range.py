"""Gradient descent at every step size: where it ends, and which step sizes diverge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from landscape_cli.figures import theme
from landscape_cli.figures.curves import prepared_having
from landscape_cli.figures.series import Drawn
from landscape_cli.runs import Run

GROUP = "learning_rate_range"


def draw_learning_rate_range(
    runs: Sequence[Run], *, labels: Sequence[str] | None = None, checkpoint: int = -1
) -> go.Figure:
    """Draw the loss after gradient descent against the step size; crosses are those that diverge.

    Crosses stand at the last finite loss of their path.

    Args:
        runs: those without the measure are left out.
        labels: one per run.
        checkpoint: index in order of training; of shorter runs, their last.

    Reference:
        Cai et al. (2019); Santurkar et al. (2018), §3.2 on the range of learning rates.
    """
    drawn = prepared_having(runs, labels, f"{GROUP}/loss")
    figure = theme.new_figure("Loss after gradient descent against the step size", height=460)
    shown = [_ends(item, checkpoint) for item in drawn]
    for item, (sizes, losses, diverged) in zip(drawn, shown, strict=True):
        _add_converged(figure, item, sizes, np.where(diverged, np.nan, losses))
        _add_diverged(figure, item, sizes[diverged], losses[diverged])
    sizes = np.concatenate([sizes for sizes, _, _ in shown] or [np.empty(0)])
    finite = sizes[np.isfinite(sizes)]
    across = theme.scale_of(finite)
    if finite.size and finite.min() > 0 and finite.max() > 3 * finite.min():
        across = theme.log_scale(float(finite.min()), float(finite.max()))
    theme.name_axis(figure, "x", "step size", across)
    theme.name_axis(figure, "y", "loss at the end", theme.scale_of(*(loss for _, loss, _ in shown)))
    return figure


def _ends(item: Drawn, checkpoint: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return step sizes, the last finite loss of each path, and which diverged."""
    paths = item.at_checkpoints(f"{GROUP}/loss")
    index = checkpoint if -len(paths) <= checkpoint < len(paths) else -1
    paths = np.asarray(paths[index], dtype=np.float64)
    finite = np.isfinite(paths)
    last = paths.shape[1] - 1 - np.argmax(finite[:, ::-1], axis=1)
    losses = np.where(finite.any(axis=1), paths[np.arange(len(paths)), last], np.nan)
    diverged = item.at_checkpoints(f"{GROUP}/diverged")[index] > 0
    return item.at_checkpoints("step_size")[index], losses, diverged


def _add_converged(figure: go.Figure, item: Drawn, x: np.ndarray, y: np.ndarray) -> None:
    figure.add_trace(
        go.Scatter(
            x=theme.compact(x),
            y=theme.compact(y),
            mode=theme.mode_of(len(x)),
            line=item.style.line(),
            marker={"symbol": item.style.symbol, "size": 6},
            name=item.name,
            legendgroup=item.name,
            showlegend=True,
            hovertemplate="loss %{y:.4g} at step size %{x:.4g}",
        )
    )


def _add_diverged(figure: go.Figure, item: Drawn, x: np.ndarray, y: np.ndarray) -> None:
    if not len(x):
        return
    line = {"width": 2, "color": item.style.colour}
    figure.add_trace(
        go.Scatter(
            x=theme.compact(x),
            y=theme.compact(y),
            mode="markers",
            marker={"symbol": "x-thin", "size": 9, "line": line},
            name=f"{item.name}: diverged",
            legendgroup=item.name,
            hovertemplate="diverged at step size %{x:.4g}",
        )
    )
