"""Where texts go: results to standard output, messages and progress to standard error."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_OF_A_PIPE = 200
"""Columns of a table that nobody looks at directly."""


def console(*, stderr: bool = False) -> Console:
    """Return a console that shows texts as they are: no markup, no highlighting."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDTH_OF_A_PIPE
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def say(text: str, *, quiet: bool = False) -> None:
    """Tell the user something that is not a result."""
    if not quiet:
        console(stderr=True).print(printable(text), soft_wrap=True)


def write(text: str = "") -> None:
    """Write a result."""
    console().print(printable(text), soft_wrap=True)


def write_json(value: Any) -> None:
    """Write a result for machines: strict JSON, with null for what is not finite."""
    print(json.dumps(strict(value), ensure_ascii=False, indent=2))


def write_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, title: str = ""
) -> None:
    """Write a table; the first `left` columns are texts, the others numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for index, column in enumerate(columns):
        numeric = index >= left
        table.add_column(column, justify="right" if numeric else "left", no_wrap=numeric)
    for row in rows:
        table.add_row(*(printable(cell) for cell in row))
    console().print(table)


def printable(text: str) -> str:
    """Return a text that cannot command the terminal: control characters made visible."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def number(value: float, digits: int = 4) -> str:
    """Return a number to a few significant digits, a dash where it is not known.

    Example:
        >>> number(0.0123456), number(float("nan")), number(12345678.0)
        ('0.01235', '–', '1.235e+07')
    """
    if math.isnan(value):
        return "–"
    return f"{value:.{digits}g}"


def strict(value: Any) -> Any:
    """Return a value that JSON has: None for a number that is not finite, lists for arrays."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextlib.contextmanager
def results_only() -> Iterator[None]:
    """Keep standard output for results: what a model or a data set prints goes to the messages."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
