"""``landscape reproduce``: run a published study and say claim by claim what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from landscape_cli.cli import output
from landscape_cli.cli.options import Debug, Json, Quiet
from landscape_cli.cli.progress import watch
from landscape_cli.cli.usage import InterruptionError
from landscape_cli.errors import SpecError

if TYPE_CHECKING:
    from landscape_cli.studies.contract import StudyResult


def reproduce(
    study: Annotated[
        str | None, typer.Argument(metavar="STUDY", help="Its name, as `--list` says.")
    ] = None,
    *,
    preset: Annotated[
        str,
        typer.Option(
            metavar="smoke|laptop|paper",
            help="Seconds; minutes on two cores; the published protocol, for a GPU.",
        ),
    ] = "laptop",
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="The folder to write to. Default: reproduced/STUDY-PRESET.",
            show_default=False,
        ),
    ] = None,
    data_root: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The folder of the published data, for `paper`. Default: $LANDSCAPE_DATA.",
            show_default=False,
        ),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Name the studies, and end.")] = False,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Write the claims of all studies in a folder as Markdown, and end.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Run a published study; write its runs and a report; say claim by claim what was seen."""
    if listing:
        _list(json=json)
    elif table is not None:
        _tabulate(table, json=json)
    elif study is None:
        raise SpecError(
            "no study was named", seen="(nothing)", hint="landscape reproduce --list names them"
        )
    else:
        options = {"preset": preset, "out": out, "data_root": data_root}
        result = _run(study, options, quiet=quiet)
        if json:
            output.write_json(result.summary())
        else:
            _render(result)


def _list(*, json: bool) -> None:
    from landscape_cli.studies import registry

    studies = registry.every()
    if json:
        output.write_json([{"name": s.name, "title": s.title, "source": s.source} for s in studies])
        return
    rows = [(study.name, study.title, study.source) for study in studies]
    output.write_table(("study", "shows", "source"), rows, left=3)


def _tabulate(folder: str, *, json: bool) -> None:
    from landscape_cli.studies.table import read_claims, render_table

    studies = read_claims(folder)
    if json:
        output.write_json(studies)
    else:
        print(render_table(studies))


def _run(study: str, options: dict[str, str | None], *, quiet: bool) -> StudyResult:
    from landscape_cli.studies.reproduce import reproduce as run

    try:
        with watch(quiet=quiet) as progress, output.results_only():
            return run(study, progress=progress, **options)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        raise InterruptionError(
            seen="what was trained and measured is kept",
            hint="the same command goes on from there",
        ) from None


def _render(result: StudyResult) -> None:
    from landscape_cli.studies.reproduce import VERDICTS

    for claim in result.claims:
        output.write(f"{VERDICTS[claim.holds]}: {claim.claim} ({claim.source})")
        output.write(f"  expected: {claim.expected}")
        output.write(f"  observed: {claim.observed}")
        if claim.explanation:
            output.write(f"  why:      {claim.explanation}")
    output.write(f"report: {result.report}")
