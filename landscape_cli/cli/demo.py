"""``landscape demo``: the whole way on small real data."""

from __future__ import annotations

from typing import Annotated

import typer

from landscape_cli.cli import output
from landscape_cli.cli.options import Debug, Json, Quiet
from landscape_cli.cli.progress import watch
from landscape_cli.errors import SpecError


def demo(
    *,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="DIR", help="The folder to write to.")
    ] = "demo-output",
    steps: Annotated[int, typer.Option(metavar="N", help="Training steps of each network.")] = 400,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Train with and without BatchNorm on digits, probe both, compare and draw."""
    if not 1 <= steps <= 100_000:
        raise SpecError("--steps is out of range", seen=steps, hint="from 1 to 100000")
    from landscape_cli.demo import run_demo

    with watch(quiet=quiet, unit="steps") as progress, output.results_only():
        found = run_demo(out, steps=steps, progress=progress, announce=progress.notice)
    if json:
        output.write_json(
            {
                "report": str(found.report),
                "figures": str(found.figures),
                "runs": {label: str(path) for label, path in found.runs.items()},
                "findings": found.findings(),
            }
        )
        return
    output.write(f"report: {found.report}")
    for line in found.findings():
        output.write(line)
