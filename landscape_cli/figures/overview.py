"""The report on runs: every figure that their contents allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import plotly.graph_objects as go

from landscape_cli.figures import measured, series
from landscape_cli.figures.bands import draw_bands
from landscape_cli.figures.distance import draw_distance
from landscape_cli.figures.document import Panel, Report, Section
from landscape_cli.figures.heatmap import draw_heatmap
from landscape_cli.figures.line import draw_line
from landscape_cli.figures.provenance import provenance_tables, remarks, summary_table
from landscape_cli.figures.smoothness import draw_smoothness
from landscape_cli.runs import Run

MOST_DIRECTIONS = 8
"""Directions between which a reader can choose; the file has them all."""
MOST_CHECKPOINTS = 12

BANDS = (
    "Shaded: between the smallest and the largest value over the steps of each checkpoint. "
    "Line: the loss at the checkpoint itself. A narrow band means that loss and gradient at the "
    "checkpoint predict what is found along the step."
)
SMOOTHNESS = (
    "β* is the largest gradient change per distance over the steps; dotted, its limit ‖Hd‖/‖d‖ "
    "for small steps. Hollow points are saturated: there β* is about one over the smallest step "
    "and says little about the network. Along the gradient, β*·lr over 2 is beyond the edge of "
    "stability."
)
DISTANCE = (
    "Every curve is one checkpoint. A quadratic loss gives a straight line from the origin, of "
    "slope 1 on log axes."
)
HEATMAP = "Every point that was probed. Black: not finite. Grey: not measured."
LINE = "One checkpoint; the dotted level is the loss at the checkpoint itself."


def build_report(
    runs: Sequence[Run], labels: Sequence[str], *, title: str = "Loss landscape"
) -> Report:
    """Return the report on one or several runs."""
    directions = series.directions_of(runs)
    shown = directions[:MOST_DIRECTIONS]
    notes = remarks(runs, labels)
    if len(directions) > len(shown):
        notes.append(f"figures are of the first {len(shown)} of {len(directions)} directions")
    sections = [
        Section("Summary", tables=[summary_table(runs, labels, name) for name in shown[:3]]),
        *([_training(runs, labels, shown)] if _is_trajectory(runs) else []),
        _points(runs, labels, shown),
        *measured.build_sections(runs, labels),
    ]
    return Report(
        title,
        sections,
        subtitle=", ".join(labels),
        notes=notes,
        provenance=provenance_tables(runs, labels),
    )


def _is_trajectory(runs: Sequence[Run]) -> bool:
    return any(len(run["checkpoint"]) > 1 for run in runs)


def _training(runs: Sequence[Run], labels: Sequence[str], directions: Sequence[str]) -> Section:
    def by_direction(draw: Callable[..., go.Figure]) -> Mapping[str, go.Figure]:
        return {name: draw(runs, labels=labels, direction=name) for name in directions}

    return Section(
        "Over training",
        figures=[
            Panel(by_direction(draw_bands), BANDS, "direction", "Loss and gradient change"),
            Panel(by_direction(draw_smoothness), SMOOTHNESS, "direction", "Effective smoothness"),
        ],
    )


def _points(runs: Sequence[Run], labels: Sequence[str], directions: Sequence[str]) -> Section:
    distances = {name: draw_distance(runs, labels=labels, direction=name) for name in directions}
    panels = [
        Panel(_lines(runs, labels, directions), LINE, "checkpoint", "One checkpoint"),
        Panel(distances, DISTANCE, "direction", "Gradient change against distance"),
    ]
    if _is_trajectory(runs):
        panels.append(Panel(_maps(runs, labels, directions), HEATMAP, "run", "Every point"))
    return Section("Along the step", figures=panels)


def _lines(
    runs: Sequence[Run], labels: Sequence[str], directions: Sequence[str]
) -> dict[str, go.Figure]:
    """Return the last checkpoint along every direction, then the others along the first."""
    lines = {
        f"last checkpoint, {name}": draw_line(runs, labels=labels, direction=name)
        for name in directions
    }
    if _is_trajectory(runs):
        word = "training step" if series.steps_known(runs) else "checkpoint"
        drawn = series.having(series.prepare(runs, labels), directions[0])
        for place in series.places_of(drawn, MOST_CHECKPOINTS):
            name = f"{word} {place:.0f}, {directions[0]}"
            lines[name] = draw_line(
                runs, labels=labels, direction=directions[0], place=float(place)
            )
    return lines


def _maps(
    runs: Sequence[Run], labels: Sequence[str], directions: Sequence[str]
) -> dict[str, go.Figure]:
    maps = {}
    for index, (run, label) in enumerate(zip(runs, labels, strict=True)):
        for name in directions:
            if name in run.labels("direction"):
                key = f"{label}, {name}"
                key = f"{key} ({index + 1})" if key in maps else key
                maps[key] = draw_heatmap(run, label=label, direction=name)
    return maps
