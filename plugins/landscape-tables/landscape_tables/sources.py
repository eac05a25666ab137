"""Where rows come from: parts of Parquet files, mapped Arrow files, CSV files in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import csv, ipc, parquet

SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
}
"""Formats by what a file's name ends on."""

CACHED_GROUPS = 4
"""Row groups of a Parquet file that are kept in memory."""


class Source(Protocol):
    """Rows of one file."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        ...

    def __len__(self) -> int: ...

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a whole column."""
        ...

    def row(self, index: int, names: Sequence[str]) -> dict[str, Any]:
        """Return some values of one row, as Python has them."""
        ...


class Loaded:
    """A table in memory, or mapped: reading a row touches that row alone."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.schema = table.schema

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a whole column."""
        return self._table.column(name)

    def row(self, index: int, names: Sequence[str]) -> dict[str, Any]:
        """Return some values of one row."""
        return {name: self._table.column(name)[index].as_py() for name in names}


class Grouped:
    """A Parquet file: row groups are read when a row of theirs is asked for, some are kept."""

    def __init__(self, path: Path) -> None:
        self._file = parquet.ParquetFile(path, memory_map=True)
        self.schema = self._file.schema_arrow
        metadata = self._file.metadata
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        self._starts: list[int] = [0, *accumulate(sizes)]
        self._group = lru_cache(CACHED_GROUPS)(self._read_group)

    def __len__(self) -> int:
        return self._starts[-1]

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a whole column."""
        return self._file.read([name]).column(name)

    def row(self, index: int, names: Sequence[str]) -> dict[str, Any]:
        """Return some values of one row."""
        number = bisect_right(self._starts, index) - 1
        group = self._group(number, tuple(names))
        return {name: group.column(name)[index - self._starts[number]].as_py() for name in names}

    def _read_group(self, number: int, names: tuple[str, ...]) -> pa.Table:
        return self._file.read_row_group(number, columns=list(names))


def open_source(path: Path) -> Source:
    """Open one file by what its name ends on; errors of pyarrow go through."""
    kind = SUFFIXES[path.suffix.lower()]
    if kind == "parquet":
        return Grouped(path)
    if kind == "csv":
        separator = "\t" if path.suffix.lower() == ".tsv" else ","
        return Loaded(csv.read_csv(path, parse_options=csv.ParseOptions(delimiter=separator)))
    mapped = pa.memory_map(str(path))
    try:
        return Loaded(ipc.open_file(mapped).read_all())
    except pa.ArrowInvalid:  # the streaming format has no footer
        mapped.seek(0)
        return Loaded(ipc.open_stream(mapped).read_all())


def find_files(path: Path) -> list[Path]:
    """Return a file, or the tables directly in a folder by name."""
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
