"""Run a study: everything it makes in one folder, a report, and its claims as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from landscape_cli.disk import replace_file
from landscape_cli.errors import SpecError, StoreError
from landscape_cli.plan import command_line, timestamp, versions
from landscape_cli.progress import Progress
from landscape_cli.studies import registry
from landscape_cli.studies.contract import Claim, Findings, Preset, Study, StudyResult
from landscape_cli.studies.workbench import Workbench

REPORT = "report.html"
CLAIMS = "claims.json"
ROOT = "reproduced"
VERDICTS = {True: "holds", False: "does not hold", None: "undecided"}


def reproduce(
    name: str,
    *,
    preset: str = "laptop",
    out: str | Path | None = None,
    data_root: str | Path | None = None,
    progress: Progress | None = None,
) -> StudyResult:
    """Repeat a published study and say claim by claim what was seen.

    Trainings and runs that the folder already holds, of the same settings, are used again; an
    interrupted study goes on where it was.

    Args:
        name: of the study, ``santurkar-fig4``.
        preset: ``smoke``, ``laptop`` or ``paper``.
        out: folder to write to, made if it does not exist; default:
            ``reproduced/NAME-PRESET``.
        data_root: folder of the published data, for ``paper``; default: what the environment
            variable ``LANDSCAPE_DATA`` names.
        progress: is told how far each stage is.

    Returns:
        The claims and the report. A claim that does not hold is a result, not an error.

    Raises:
        SpecError: If there is no such study or preset, or ``paper`` lacks its data.
        StoreError: If the folder cannot be made or written.
    """
    study = registry.find(name)
    chosen = _check_preset(preset)
    folder = _make(Path(out) if out is not None else Path(ROOT) / f"{study.name}-{chosen}")
    bench = Workbench(folder, chosen, data_root=data_root, progress=progress)
    findings = study.run(bench)
    result = StudyResult(
        study=study.name,
        preset=chosen,
        folder=folder,
        report=folder / REPORT,
        claims=tuple(findings.claims),
    )
    _write_report(study, bench, findings)
    _write_claims(study, bench, result)
    return result


def _check_preset(preset: str) -> Preset:
    for known in get_args(Preset):
        if preset == known:
            return known  # type: ignore[no-any-return]
    raise SpecError(
        f"no preset is named {preset!r}", seen=", ".join(get_args(Preset)), hint="--preset laptop"
    )


def _make(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            "the folder for the study cannot be made",
            seen=f"{folder}: {error.strerror}",
            hint="--out DIR, where you may write",
        ) from None
    return folder


def _write_report(study: Study, bench: Workbench, findings: Findings) -> None:
    from landscape_cli.figures.document import Report, Section

    claims = Section("Claims", tables=[claims_table(findings.claims)])
    counts = [(v, sum(c.holds is k for c in findings.claims)) for k, v in VERDICTS.items()]
    Report(
        study.title,
        [claims, *findings.sections],
        subtitle=f"{study.source}; preset {bench.preset}",
        summary=[", ".join(f"{count} {verdict}" for verdict, count in counts if count)],
        notes=findings.notes,
        provenance=[_provenance(bench)],
    ).write(bench.folder / REPORT)


def claims_table(claims: tuple[Claim, ...] | Any) -> Any:
    """Return the table of claims that opens every report."""
    from landscape_cli.figures.document import Table

    columns = ("claim", "verdict", "expected", "observed", "what is known of why", "source")
    rows = [
        (c.claim, VERDICTS[c.holds], c.expected, c.observed, c.explanation, c.source)
        for c in claims
    ]
    caption = (
        "Intervals are 95 % over seeds. Undecided: the interval has both sides of what was "
        "expected, or there is none."
    )
    return Table(columns, rows, caption)


def _provenance(bench: Workbench) -> Any:
    from landscape_cli.figures.document import Table

    runs = [(f"run {name}", str(path)) for name, path in bench.runs.items()]
    return Table(("study", "value"), [*_facts(bench).items(), *runs])


def _facts(bench: Workbench) -> dict[str, str]:
    return {
        "preset": bench.preset,
        "seeds": ", ".join(map(str, bench.seeds)),
        "command": command_line(),
        "created": timestamp(),
        **versions(),
    }


def _write_claims(study: Study, bench: Workbench, result: StudyResult) -> None:
    values = {
        **result.summary(),
        "title": study.title,
        "source": study.source,
        "claims": [asdict(claim) for claim in result.claims],
        "runs": {name: str(path) for name, path in bench.runs.items()},
        "provenance": _facts(bench),
    }
    text = json.dumps(values, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    replace_file(bench.folder / CLAIMS, text.encode(), what="the claims")
