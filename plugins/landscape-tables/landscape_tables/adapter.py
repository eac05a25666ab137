"""The data adapter ``tables``: ``--data 'tables:data.parquet?x=x*&y=label'``."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from landscape_cli.errors import AdapterError
from landscape_tables.dataset import Columns, TableSamples, class_names, is_tokens
from landscape_tables.sources import SUFFIXES, Source, find_files, open_source

DTYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64}


def open_table(
    target: str,
    *,
    x: str | Sequence[str] = "x*",
    y: str = "y",
    dtype: str | None = None,
) -> TableSamples:
    """Open a table, or a folder of them, as pairs of an input and a target.

    Args:
        target: a ``.parquet``, ``.arrow``, ``.feather``, ``.csv`` or ``.tsv`` file, or a folder
            with such files, which are put one after another by name.
        x: columns of the input: names or shell patterns, separated by commas. Columns of
            numbers are joined to a vector; a single column of lists keeps its shape.
        y: the column of the target: a whole number or a text is a class, any other number, or a
            list of them, a regression target.
        dtype: ``float32``, ``float64`` or ``int64``, the type of the input; ``int64`` for a
            single column of lists of integers, as tokens are, else ``float32``.

    Raises:
        AdapterError: If there is no such file or column, or a value cannot be meant.
    """
    if dtype is not None and dtype not in DTYPES:
        raise AdapterError(
            f"the option 'dtype' cannot be {dtype!r}",
            seen=f"dtype={dtype}",
            hint=", ".join(DTYPES),
        )
    sources = _open(Path(target).expanduser())
    inputs = _choose(sources[0], x, y)
    for source in sources:
        _check_columns(source, (*inputs, y))
    kind = DTYPES[dtype or ("int64" if is_tokens(sources[0], inputs) else "float32")]
    samples = TableSamples(sources, Columns(inputs, str(y), kind, class_names(sources, y)))
    if not len(samples):
        raise AdapterError("the table has no rows", seen=target, hint="check the file")
    return samples


def _open(path: Path) -> list[Source]:
    files = find_files(path)
    unknown = [file for file in files if file.suffix.lower() not in SUFFIXES]
    if not files or unknown or not path.exists():
        raise AdapterError(
            "there is no table there" if not path.exists() or not files else "no such format",
            seen=str(path),
            hint="a file or a folder of files that end on " + ", ".join(SUFFIXES),
        )
    try:
        return [open_source(file) for file in files]
    except (pa.ArrowException, OSError) as error:
        raise AdapterError(
            "the table cannot be read",
            seen=f"{path}: {str(error).splitlines()[0]}",
            hint="pyarrow has to be able to open it",
        ) from error


def _choose(source: Source, x: Any, y: Any) -> tuple[str, ...]:
    names: list[str] = source.schema.names
    patterns = x.split(",") if isinstance(x, str) else [str(item) for item in x]
    chosen: list[str] = []
    for pattern in patterns:
        found = [name for name in names if fnmatchcase(name, pattern) and name != y]
        if not found:
            raise AdapterError(
                f"no column of the table is named {pattern!r}",
                seen=_listed(names),
                hint="x=NAME,NAME&y=NAME say which columns are input and target; * is any text",
            )
        chosen += [name for name in found if name not in chosen]
    return tuple(chosen)


def _check_columns(source: Source, names: Sequence[str]) -> None:
    for name in names:
        if name not in source.schema.names:
            raise AdapterError(
                f"no column of the table is named {name!r}",
                seen=_listed(source.schema.names),
                hint="x=NAME,NAME&y=NAME say which columns are input and target",
            )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
