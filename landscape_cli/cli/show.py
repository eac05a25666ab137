"""``landscape show``: the numbers of a run, in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from landscape_cli.cli import output
from landscape_cli.cli.options import Debug, Json

if TYPE_CHECKING:
    from landscape_cli.runs import Run

BASIC = ("loss_range", "gradient_predictiveness", "effective_smoothness")


def show(
    run: Annotated[str, typer.Argument(metavar="RUN.h5", help="A file that `probe` wrote.")],
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Every line; with --json, every array of the file.")
    ] = False,
    json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Show the numbers of a run, finished or not."""
    from landscape_cli.cli.summary import summarise
    from landscape_cli.store import open_run

    opened = open_run(run)
    summary = {**summarise(opened), **_origin(opened)}
    if json:
        output.write_json({**summary, "variables": _arrays(opened, every=every)})
        return
    _write(opened, summary, every=every)


def _origin(run: Run) -> dict[str, Any]:
    names = ("format_version", "created", "command", "dtype", "seed")
    return {
        **{name: run.attributes[name] for name in names if name in run.attributes},
        "settings": dict(run.settings),
    }


def _arrays(run: Run, *, every: bool) -> dict[str, Any]:
    """Return the arrays of the further measures by path, or all there are."""
    return {
        path: {"dims": variable.dims, "unit": variable.unit, "values": variable.values}
        for path, variable in run.variables.items()
        if every or ("/" in path and path.split("/")[0] not in BASIC)
    }


def _write(run: Run, summary: dict[str, Any], *, every: bool) -> None:
    from landscape_cli.cli.summary import write_summary

    settings = summary["settings"]
    for name in ("status", "created", "command", "device", "strategy"):
        if summary.get(name):
            output.write(f"{name + ':':<10} {summary[name]}")
    for name in ("model", "data", "loss", "steps"):
        if settings.get(name):
            output.write(f"{name + ':':<10} {settings[name]}")
    output.write()
    write_summary(summary, every_line=every)
    _write_measures(run)
    for notice in summary["notices"]:
        output.write(f"note: {notice}")


def _write_measures(run: Run) -> None:
    import numpy as np

    rows = []
    for path, variable in run.variables.items():
        if (
            "/" not in path
            or path.split("/")[0] in BASIC
            or variable.values.dtype.kind not in "fiu"
        ):
            continue
        values = variable.values.astype(np.float64)
        finite = values[np.isfinite(values)]
        spread = (np.min, np.median, np.max)
        numbers = [output.number(float(of(finite))) if finite.size else "–" for of in spread]
        rows.append((path, " × ".join(variable.dims), *numbers, f"{finite.size}/{values.size}"))
    if rows:
        columns = ("measure", "over", "minimum", "median", "maximum", "finite")
        output.write_table(columns, rows, left=2)
