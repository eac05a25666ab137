"""``landscape plot``: interactive figures of runs, as one file."""

from __future__ import annotations

from typing import Annotated

import typer

from landscape_cli.cli import output
from landscape_cli.cli.options import Debug, Quiet


def plot(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN.h5...", help="Files that `probe` wrote.")
    ],
    *,
    report: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT.html", help="The file to write.")
    ],
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME", help="Name of a run; once for each, in order."),
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Draw what runs hold: one HTML file that works offline."""
    from landscape_cli.figures import plot as draw

    draw(*runs, output=report, labels=label or None)
    output.say(f"open {report} in a browser", quiet=quiet)
