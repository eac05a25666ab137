"""Rows as pairs of an input and a target."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.utils.data import Dataset

from landscape_cli.errors import AdapterError
from landscape_tables.sources import Source


@dataclass(frozen=True)
class Columns:
    """Which columns are used, and how.

    Attributes:
        inputs: names of the inputs, in the order in which they are joined.
        target: name of the target.
        dtype: type of the inputs, and of a target of numbers.
        classes: texts that are class numbers, by their order; empty where targets are numbers.
    """

    inputs: tuple[str, ...]
    target: str
    dtype: torch.dtype
    classes: tuple[str, ...] = ()


class TableSamples(Dataset[tuple[Tensor, Tensor]]):
    """Pairs of the joined input columns and the target, read when they are asked for.

    Args:
        sources: files with the same columns, one after another.
        columns: which columns, and how.

    Attributes:
        columns: as given; ``columns.classes`` are the names of the classes.
    """

    def __init__(self, sources: Sequence[Source], columns: Columns) -> None:
        self._sources = sources
        self._starts = [0, *accumulate(len(source) for source in sources)]
        self.columns = columns
        self._classes = {name: number for number, name in enumerate(columns.classes)}
        self._names = (*columns.inputs, columns.target)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        position = range(len(self))[index]
        number = bisect_right(self._starts, position) - 1
        row = self._sources[number].row(position - self._starts[number], self._names)
        self._check(row, position)
        return self._input(row), self._target(row[self.columns.target])

    def _check(self, row: dict[str, Any], position: int) -> None:
        empty = [name for name, value in row.items() if value is None]
        if empty:
            raise AdapterError(
                "a row has no value",
                seen=f"row {position}, column {empty[0]}",
                hint="fill or drop the rows with missing values",
            )

    def _input(self, row: dict[str, Any]) -> Tensor:
        parts = [_array(row[name], self.columns.dtype) for name in self.columns.inputs]
        if len(parts) == 1:
            return parts[0]
        return torch.cat([part.reshape(-1) for part in parts])

    def _target(self, value: Any) -> Tensor:
        if isinstance(value, str):
            return torch.tensor(self._classes[value])
        if isinstance(value, bool | int):
            return torch.tensor(int(value))
        whole = isinstance(value, list) and _all_whole(value)
        return _array(value, torch.int64 if whole else self.columns.dtype)


def _array(value: Any, dtype: torch.dtype) -> Tensor:
    """Return a number, or lists of numbers to any depth, as a tensor."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "biuf":
        raise AdapterError(
            "a value is not a number, nor a list of them of one shape",
            seen=repr(value)[:60],
            hint="x=NAME,NAME names the columns with numbers",
        )
    return torch.from_numpy(array.astype(_NUMPY[dtype]))


_NUMPY = {torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64}


def _all_whole(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "biu"


def class_names(sources: Sequence[Source], name: str) -> tuple[str, ...]:
    """Return the texts in a column in order, empty if it holds no text.

    Every file is asked, so that a class has the same number whatever the rows are.
    """
    names: set[str] = set()
    for source in sources:
        kind = source.schema.field(name).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            names.update(v for v in source.column(name).unique().to_pylist() if v is not None)
    return tuple(sorted(names))


def is_tokens(source: Source, names: Sequence[str]) -> bool:
    """Whether the input is one column of lists of integers, as tokens are."""
    if len(names) != 1:
        return False
    kind = source.schema.field(names[0]).type
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    listed = listed or pa.types.is_fixed_size_list(kind)
    return bool(listed and pa.types.is_integer(kind.value_type))
