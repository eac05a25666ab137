"""Sections for the measures that a run has beyond the three of every probe."""

from __future__ import annotations

from collections.abc import Sequence

from landscape_cli.figures.document import Panel, Section
from landscape_cli.figures.plane import draw_contour, draw_surface
from landscape_cli.runs import Run


def build_sections(runs: Sequence[Run], labels: Sequence[str]) -> list[Section]:
    """Return a section for every measure that one of the runs has."""
    return [*_planes(runs, labels)]


def _planes(runs: Sequence[Run], labels: Sequence[str]) -> list[Section]:
    panels = []
    for run, label in zip(runs, labels, strict=True):
        if "plane/loss" in run:
            variants = {
                "contours": draw_contour(run, label=label),
                "three dimensions": draw_surface(run, label=label),
            }
            panels.append(Panel(variants, choice="as", title=f"{label}: loss over a plane"))
    return [Section("Planes", figures=panels)] if panels else []
