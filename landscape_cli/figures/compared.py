"""The report on a comparison: verdicts first, then the figures they rest on."""

from __future__ import annotations

from collections.abc import Sequence

from landscape_cli.compare import Comparison, Contrast, Pairing
from landscape_cli.figures import overview
from landscape_cli.figures.document import Cell, Report, Section, Table
from landscape_cli.figures.provenance import notices, provenance_tables
from landscape_cli.runs import Run

COLUMNS = (
    "quantity",
    "direction",
    "{first}",
    "{other}",
    "ratio",
    "95% interval",
    "pairs",
    "verdict",
)


def build_report(comparison: Comparison) -> Report:
    """Return the report on a comparison."""
    runs, labels = _named(comparison)
    figures = overview.build_report(runs, labels)
    pairings = [_pairing(pairing) for pairing in comparison.pairings]
    return Report(
        " against ".join(comparison.labels[::-1]) if len(comparison.labels) == 2 else "Comparison",
        [*pairings, *figures.sections],
        subtitle=f"aligned by {comparison.align}",
        summary=comparison.findings(),
        notes=[*comparison.warnings(), *notices(runs, labels)],
        provenance=provenance_tables(runs, labels),
    )


def _named(comparison: Comparison) -> tuple[list[Run], list[str]]:
    """Return all runs, repeats of a label told apart by a number."""
    runs: list[Run] = []
    labels: list[str] = []
    for label, repeats in comparison.runs.items():
        runs.extend(repeats)
        numbered = [f"{label} ({index})" for index in range(1, len(repeats) + 1)]
        labels.extend(numbered if len(repeats) > 1 else [label])
    return runs, labels


def _pairing(pairing: Pairing) -> Section:
    columns = [name.format(first=pairing.first, other=pairing.other) for name in COLUMNS]
    rows = [_row(contrast) for contrast in pairing.contrasts]
    decided = [index for index, contrast in enumerate(pairing.contrasts) if contrast.lower]
    caption = (
        f"Medians over the pairs; the ratio is the geometric mean of {pairing.other} over "
        f"{pairing.first}, pair by pair. {pairing.method}."
    )
    table = Table(columns, rows, caption, decided)
    return Section(f"{pairing.other} against {pairing.first}", tables=[table])


def _row(contrast: Contrast) -> Sequence[Cell]:
    interval = contrast.interval
    return (
        contrast.title,
        contrast.direction,
        contrast.first_median,
        contrast.other_median,
        contrast.ratio,
        f"{interval[0]:.3g}\u00a0to\u00a0{interval[1]:.3g}" if interval else None,
        contrast.pairs,
        contrast.verdict,
    )
