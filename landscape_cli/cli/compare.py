"""``landscape compare``: hold runs against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from landscape_cli.cli import output
from landscape_cli.cli.options import Debug, Json, Quiet
from landscape_cli.errors import SpecError

if TYPE_CHECKING:
    from landscape_cli.compare import Comparison, Contrast, Pairing

ALIGNMENTS = ("step", "loss")


def compare(
    runs: Annotated[
        list[str], typer.Argument(metavar="A.h5 B.h5...", help="Files that `probe` wrote.")
    ],
    *,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="NAME",
            help="Name of a run, once for each, in order; runs of one name are repeats.",
        ),
    ] = None,
    align: Annotated[
        str,
        typer.Option(metavar="BY", help="Hold together what has the same training step or loss."),
    ] = "step",
    report: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="OUT.html", help="Also write a report."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Hold runs against the first one, with intervals and a verdict."""
    if align not in ALIGNMENTS:
        raise SpecError("--align has no such value", seen=align, hint=", ".join(ALIGNMENTS))
    from landscape_cli.compare import compare as hold

    comparison = hold(*runs, labels=label or None, align=align, output=report)  # type: ignore[arg-type]
    if json:
        output.write_json(comparison.to_dict())
    else:
        _write(comparison)
    if report is not None:
        output.say(f"open {report} in a browser", quiet=quiet)


def _write(comparison: Comparison) -> None:
    for pairing in comparison.pairings:
        _write_pairing(pairing)
    for finding in comparison.findings():
        output.write(f"- {finding}")
    warnings = comparison.warnings()
    if warnings:
        output.write("\nto keep in mind:")
    for warning in warnings:
        output.write(f"- {warning}")


def _write_pairing(pairing: Pairing) -> None:
    columns = ("quantity", "direction", pairing.first, pairing.other, "ratio", "95% interval")
    rows = [_row(contrast) for contrast in pairing.contrasts]
    output.write_table((*columns, "pairs", "verdict"), rows, left=2)


def _row(contrast: Contrast) -> tuple[str, ...]:
    interval = contrast.interval
    return (
        contrast.title,
        contrast.direction,
        output.number(contrast.first_median),
        output.number(contrast.other_median),
        output.number(contrast.ratio, 3),
        "–" if interval is None else " to ".join(output.number(end, 3) for end in interval),
        str(contrast.pairs),
        contrast.verdict,
    )
