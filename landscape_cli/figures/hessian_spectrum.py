"""Largest eigenvalues of the Hessian and its trace over training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from landscape_cli.figures.curves import Curve, Plot, draw_over_training, prepared_having
from landscape_cli.runs import Run

GROUP = "hessian_spectrum"


def draw_hessian_spectrum(runs: Sequence[Run], *, labels: Sequence[str] | None = None) -> go.Figure:
    """Draw the eigenvalues that were measured and the trace over training.

    The largest eigenvalue is drawn in the run's own dash, the others dotted; 2/lr, where gradient
    descent on a quadratic becomes unstable, is a thin line of dots and dashes.

    Args:
        runs: those without the measure are left out.
        labels: one per run.
    """
    drawn = prepared_having(runs, labels, f"{GROUP}/eigenvalue")
    eigenvalues, traces = [], []
    for item in drawn:
        values = np.asarray(item.at_checkpoints(f"{GROUP}/eigenvalue"))
        values = np.moveaxis(
            values, item.run.variables[f"{GROUP}/eigenvalue"].dims.index("rank"), 1
        )
        for rank in range(values.shape[1]):
            name = "largest eigenvalue" if rank == 0 else "further eigenvalues"
            eigenvalues.append(
                Curve(item, values[:, rank], name, dash=None if rank == 0 else "dot")
            )
        eigenvalues.append(
            Curve(item, 2 / item.at_checkpoints("learning_rate"), "2/lr", dash="longdashdot")
        )
        if f"{GROUP}/trace" in item.run:
            traces.append(Curve(item, item.at_checkpoints(f"{GROUP}/trace")))
    plots = [Plot("eigenvalues", eigenvalues), *([Plot("trace", traces)] if traces else [])]
    return draw_over_training("Hessian spectrum", runs, plots)
