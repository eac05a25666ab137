"""A report as HTML: escaped everywhere, styled for screen and print, plotly inside once."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import plotly.graph_objects as go
import plotly.io
from plotly.offline import get_plotlyjs

from landscape_cli.figures.document import Cell, Panel, Report, Section, Table
from landscape_cli.figures.theme import shortened

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:"
)
"""The page may load nothing; plotly needs inline styles and, for 3-D, evaluated shaders."""


LONGEST_WORD = 24
"""Characters without a space that a table cell shows unbroken."""


def render_page(report: Report) -> str:
    """Return a report as one HTML document."""
    numbers = iter(range(1, 1_000_000))
    body = [
        _header(report),
        *(_section(section, numbers) for section in report.sections),
        _provenance(report.provenance),
    ]
    drawn = any(section.figures for section in report.sections)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(shortened(report.title, 200))}</title>",
            f"<style>{_asset('report.css')}</style>",
            f"<script>{get_plotlyjs()}</script>" if drawn else "",
            "</head>",
            "<body>",
            "<main>",
            *body,
            "</main>",
            f"<script>{_asset('report.js')}</script>" if drawn else "",
            "</body>",
            "</html>",
            "",
        ]
    )


def script_json(value: Any) -> str:
    """Return JSON that cannot end the script element it stands in, nor open a comment."""
    text = value if isinstance(value, str) else json.dumps(value)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _asset(name: str) -> str:
    return (files("landscape_cli.figures") / "assets" / name).read_text(encoding="utf-8")


def _header(report: Report) -> str:
    parts = [f"<header><h1>{escape(report.title)}</h1>"]
    if report.subtitle:
        parts.append(f'<p class="subtitle">{escape(report.subtitle)}</p>')
    if report.summary:
        lines = "".join(f"<li>{escape(line)}</li>" for line in report.summary)
        parts.append(f'<ul class="summary">{lines}</ul>')
    parts.append(_notes(report.notes))
    parts.append("</header>")
    return "\n".join(part for part in parts if part)


def _section(section: Section, numbers: Iterable[int]) -> str:
    parts = [f"<section><h2>{escape(section.title)}</h2>"]
    parts.extend(f"<p>{escape(text)}</p>" for text in _paragraphs(section.text))
    parts.append(_notes(section.notes))
    parts.extend(_table(table) for table in section.tables)
    for item in section.figures:
        panel = item if isinstance(item, Panel) else Panel(item)
        parts.append(_panel(panel, f"figure-{next(iter(numbers))}", under=section.title))
    parts.append("</section>")
    return "\n".join(part for part in parts if part)


def _paragraphs(text: str) -> list[str]:
    return [part.strip() for part in text.split("\n\n") if part.strip()]


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<aside class="notes"><h3>Notes</h3><ul>{items}</ul></aside>'


def _table(table: Table) -> str:
    named = [_cell(str(name)) for name in table.columns]
    heads = "".join(f'<th scope="col"{kind}>{text}</th>' for kind, text in named)
    rows = []
    for index, row in enumerate(table.rows):
        mark = ' class="emphasis"' if index in table.emphasis else ""
        first, *rest = [_cell(cell) for cell in row]
        cells = "".join(f"<td{kind}>{text}</td>" for kind, text in rest)
        rows.append(f'<tr{mark}><th scope="row"{first[0]}>{first[1]}</th>{cells}</tr>')
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    body = f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table>{caption}{body}</table></div>'


def _cell(cell: Cell) -> tuple[str, str]:
    """Return the attributes and the text of a cell."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ' class="number"', '<span title="no number">–</span>'
    if isinstance(cell, bool | str):
        long = max(map(len, str(cell).split()), default=0) > LONGEST_WORD
        return (' class="long"' if long else ""), escape(str(cell))
    if isinstance(cell, int):
        return ' class="number"', f"{cell:,}"
    return ' class="number"', escape(f"{float(cell):.4g}")


def _panel(panel: Panel, identifier: str, under: str) -> str:
    variants = panel.variants()
    first = next(iter(variants.values()))
    title = panel.title or _title(first)
    height = max(int(figure.layout.height or 450) for figure in variants.values())
    parts = [f'<figure id="{identifier}" class="panel">']
    if title and title != under:
        parts.append(f"<h3>{escape(title)}</h3>")
    if len(variants) > 1:
        options = "".join(
            f'<option value="{index}">{escape(shortened(name, 80))}</option>'
            for index, name in enumerate(variants)
        )
        parts.append(
            f'<label class="choice">{escape(panel.choice)} <select>{options}</select></label>'
        )
    label = escape(shortened(title, 200), quote=True)
    parts.append(
        f'<div class="plot" role="img" aria-label="{label}" style="min-height:{height}px"></div>'
    )
    if panel.caption:
        parts.append(f"<figcaption>{escape(panel.caption)}</figcaption>")
    parts.extend(
        f'<script type="application/json">{_figure_json(figure)}</script>'
        for figure in variants.values()
    )
    parts.append("</figure>")
    return "\n".join(parts)


def _title(figure: go.Figure) -> str:
    meta = figure.layout.meta
    return str(meta.get("title", "")) if isinstance(meta, dict) else ""


def _figure_json(figure: go.Figure) -> str:
    """Return a figure without its title, which is the heading above it."""
    shown = go.Figure(figure)
    if _title(figure):
        shown.update_layout(title_text="", margin_t=24)
    return script_json(plotly.io.to_json(shown, validate=False, engine="json"))


def _provenance(tables: Sequence[Table]) -> str:
    if not tables:
        return ""
    return "\n".join(
        [
            '<section class="provenance"><h2>Where the numbers come from</h2>',
            *(_table(table) for table in tables),
            "</section>",
        ]
    )
