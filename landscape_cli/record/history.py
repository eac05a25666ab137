"""The course of training, one line a step: ``history.csv``, as spreadsheets and pandas read it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from torch import Tensor

from landscape_cli.disk import replace_file
from landscape_cli.errors import CheckpointError

NAME = "history.csv"
STEP = "step"
FLUSH_ROWS = 64
"""Rows that may wait in memory: on a GPU, reading a loss at once would stall training."""

Row = dict[str, Any]


class History:
    """Rows of numbers by column, appended to a file in the order of the steps.

    The last row stays open, so that more can be said of its step. A new column widens the file.

    Args:
        path: the file; what it holds already is kept.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._columns = _read_columns(path)
        self._rows: list[Row] = []

    def note(self, step: int, values: Mapping[str, Any]) -> None:
        """Add numbers to the row of a step; scalars, 0-dimensional tensors included."""
        kept = {name: _detached(value) for name, value in values.items() if value is not None}
        if self._rows and self._rows[-1][STEP] == step:
            self._rows[-1].update(kept)
            return
        self._rows.append({STEP: step, **kept})
        if len(self._rows) > FLUSH_ROWS:
            self.flush()

    def flush(self, *, last: bool = False) -> None:
        """Write the rows that wait, the open one only if it is the `last`."""
        ready = self._rows if last else self._rows[:-1]
        if not ready:
            return
        self._rows = self._rows[len(ready) :]
        self._widen(ready)
        with self.path.open("a", newline="", encoding="utf-8") as file:
            self._writer(file).writerows(map(_as_text, ready))

    def _writer(self, file: TextIO) -> csv.DictWriter[str]:
        return csv.DictWriter(file, self._columns, restval="", lineterminator="\n")

    def truncate(self, step: int) -> None:
        """Drop the rows from `step` on, which training goes through again."""
        rows = [row for row in _read_rows(self.path) if int(row[STEP]) < step]
        self._rewrite(rows)

    def _widen(self, rows: Iterable[Row]) -> None:
        wanted = dict.fromkeys([STEP, *self._columns, *(name for row in rows for name in row)])
        if list(wanted) != self._columns:
            earlier = _read_rows(self.path)
            self._columns = list(wanted)
            self._rewrite(earlier)

    def _rewrite(self, rows: Iterable[Mapping[str, str]]) -> None:
        if not self._columns:
            return
        text = io.StringIO()
        writer = self._writer(text)
        writer.writeheader()
        writer.writerows(rows)
        replace_file(self.path, text.getvalue().encode(), what="the history")


def read_history(folder: str | Path) -> dict[str, np.ndarray]:
    """Return the columns of a recording's history.

    Args:
        folder: of the recording, or the file itself.

    Returns:
        ``step`` as int64 and every other column as float64, of equal length; NaN where nothing
        was noted, and where what was noted is NaN.

    Raises:
        CheckpointError: If there is no such file, or it is damaged.
    """
    path = Path(folder)
    path = path / NAME if path.is_dir() else path
    if not path.is_file():
        raise CheckpointError("there is no history", seen=str(path), hint="a folder of Recorder")
    columns, rows = _read_columns(path), _read_rows(path)
    try:
        steps = np.array([int(row[STEP]) for row in rows], dtype=np.int64)
        numbers = {
            name: np.array([float(row[name] or "nan") for row in rows], dtype=np.float64)
            for name in columns
            if name != STEP
        }
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            "the history is damaged",
            seen=f"{path}: {error}",
            hint="a CSV file with a column 'step'",
        ) from None
    return {STEP: steps, **numbers}


def as_number(value: float | Tensor) -> float:
    """Return a scalar as a float, whether or not it has a gradient."""
    return float(value.detach() if isinstance(value, Tensor) else value)


def _detached(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _as_text(row: Row) -> dict[str, str]:
    return {name: str(v) if name == STEP else repr(as_number(v)) for name, v in row.items()}


def _read_columns(path: Path) -> list[str]:
    return next(csv.reader(_whole_lines(path)), [])


def _read_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(_whole_lines(path), restval=""))


def _whole_lines(path: Path) -> list[str]:
    """Return the lines of a file; one that was cut off in the middle of writing is left out."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return text[: text.rfind("\n") + 1].splitlines()
