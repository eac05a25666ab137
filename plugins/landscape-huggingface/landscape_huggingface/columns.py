"""Rows that are tokens or tensors already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset

from landscape_cli.errors import AdapterError
from landscape_huggingface.language import Sample, TokenSamples

TOKEN_COLUMNS = (
    *("input_ids", "attention_mask", "token_type_ids", "special_tokens_mask"),
    *("decoder_input_ids", "labels", "label"),
)
"""Columns that tokenised data sets have and models take."""


def open_columns(rows: Any, columns: str | Sequence[str]) -> Dataset[Any]:
    """Return mappings of the named columns as tensors.

    Raises:
        AdapterError: If there is no such column, or it does not hold numbers.
    """
    names = columns.split(",") if isinstance(columns, str) else list(columns)
    for name in names:
        if name not in rows.column_names:
            raise AdapterError(
                f"the data set has no column {name!r}",
                seen=", ".join(rows.column_names),
                hint="columns=pixel_values,labels",
            )
    return _Columns(rows.with_format("torch", columns=names))


class _Columns(Dataset[Sample]):
    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Sample:
        return dict(self._rows[index])


def open_tokens(rows: Any, task: str, max_length: int) -> TokenSamples:
    """Return samples of rows that hold ``input_ids``, cut to `max_length`.

    Raises:
        AdapterError: If they do not, or `task` needs labels that are not there.
    """
    names = [name for name in TOKEN_COLUMNS if name in rows.column_names]
    if "input_ids" not in names:
        raise AdapterError(
            "there is no tokenizer, and no column with tokens",
            seen=", ".join(rows.column_names),
            hint="tokenizer=FOLDER, or columns=NAME,NAME for columns of numbers",
        )
    if task != "causal-lm" and not {"labels", "label"} & set(names):
        raise AdapterError(
            f"rows of tokens need a column 'labels' for {task}",
            seen=", ".join(rows.column_names),
            hint="tokenizer=FOLDER makes them from text",
        )
    return TokenSamples(len(rows), _Tokens(rows.select_columns(names), task, max_length))


@dataclass(frozen=True)
class _Tokens:
    rows: Any
    task: str
    max_length: int

    def __call__(self, index: int) -> Sample:
        values = {name: self._cut(value) for name, value in self.rows[index].items()}
        values.pop("special_tokens_mask", None)
        if "label" in values:
            values["labels"] = values.pop("label")
        if "labels" not in values:
            values["labels"] = list(values["input_ids"])
        return values

    def _cut(self, value: Any) -> Any:
        return value[: self.max_length] if isinstance(value, list) else value
