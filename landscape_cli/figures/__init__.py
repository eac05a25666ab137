"""Figures of runs, and reports made of them: one HTML file each that works offline.

Every kind of figure is a function from runs to a plotly figure, in a file of its own; `Report`
puts figures, tables and text together. Nothing here is drawn before it is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from landscape_cli.figures.document import Panel, Report, Section, Table, report
    from landscape_cli.runs import Run

__all__ = ["Panel", "Report", "Section", "Table", "plot", "report"]


def plot(
    *runs: Run | str | Path,
    output: str | Path | None = None,
    labels: Sequence[str] | None = None,
) -> Report:
    """Draw everything that one or several runs hold.

    Args:
        runs: in memory or as files; the order gives colours and dashes.
        output: where to write the report, one HTML file that works offline.
        labels: one per run; default: the files' names, made different.

    Returns:
        The report, written if `output` is given.

    Raises:
        SpecError: If there is no run, or not one label per run.
        StoreError: If a file cannot be read or the report cannot be written.
    """
    from landscape_cli.compare import name_runs
    from landscape_cli.errors import SpecError
    from landscape_cli.figures import overview
    from landscape_cli.runs import Run

    if not runs:
        raise SpecError("there is no run to plot", seen="(nothing)", hint="landscape plot RUN.h5")
    opened = [run if isinstance(run, Run) else _open(run) for run in runs]
    built = overview.build_report(opened, name_runs(opened, labels))
    if output is not None:
        built.write(output)
    return built


def _open(path: str | Path) -> Run:
    from landscape_cli.store import open_run

    return open_run(path)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("landscape_cli.figures.document"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
