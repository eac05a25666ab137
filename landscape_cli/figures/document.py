"""Reports: sections of text, figures and tables, as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import plotly.graph_objects as go

from landscape_cli.disk import replace_file

Cell = str | float | int | None


@dataclass(frozen=True)
class Table:
    """A table; every cell is text or a number, shown to four digits, NaN and None as a dash.

    Attributes:
        columns: headings.
        rows: cells, one row after the other, each as long as `columns`.
        caption: what it shows, under the table.
        emphasis: the rows that are set in bold, by index.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    emphasis: Sequence[int] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{len(row)} cells under {len(self.columns)} columns: {row!r}")


@dataclass(frozen=True)
class Panel:
    """One place for a figure, or for several between which the reader chooses.

    Attributes:
        figures: a figure, or figures by the name they are chosen by; the first is shown and
            printed.
        caption: what to see in it.
        choice: what the names are, e.g. "direction".
        title: heading of the panel; by default that of the figure.
    """

    figures: go.Figure | Mapping[str, go.Figure]
    caption: str = ""
    choice: str = "show"
    title: str = ""

    def variants(self) -> dict[str, go.Figure]:
        """Return the figures by name."""
        if isinstance(self.figures, go.Figure):
            return {"": self.figures}
        return dict(self.figures)


@dataclass(frozen=True)
class Section:
    """One heading and what is under it, in this order: text, notes, tables, figures.

    Attributes:
        title: the heading.
        text: plain text; an empty line begins a new paragraph.
        figures: figures or panels.
        tables: tables.
        notes: warnings, set apart.
    """

    title: str
    text: str = ""
    figures: Sequence[go.Figure | Panel] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Report:
    """A report: everything given to it is shown as text, never read as HTML.

    Attributes:
        title: the heading of the page.
        sections: from top to bottom.
        subtitle: a line under the title.
        summary: the first thing to read: one or a few lines.
        notes: warnings that concern the whole, at the top.
        provenance: tables at the end: command, settings, versions, hashes.
    """

    title: str
    sections: Sequence[Section] = ()
    subtitle: str = ""
    summary: Sequence[str] = ()
    notes: Sequence[str] = ()
    provenance: Sequence[Table] = field(default_factory=tuple)

    def html(self) -> str:
        """Return the page: one file with plotly inside, that loads nothing."""
        from landscape_cli.figures.page import render_page

        return render_page(self)

    def write(self, path: str | Path) -> Path:
        """Write the page, replacing what is there only once the new one is whole.

        Raises:
            StoreError: If it cannot be written.
        """
        replace_file(Path(path), self.html().encode(), what="the report")
        return Path(path)


def report(title: str, sections: Sequence[Section], **options: object) -> Report:
    """Return a report; `options` are the further fields of `Report`."""
    return Report(title, sections, **options)  # type: ignore[arg-type]
