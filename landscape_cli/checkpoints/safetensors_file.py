"""Safetensors: one file, or shards with an index."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from landscape_cli.checkpoints.contents import (
    DEFAULT,
    Contents,
    Entries,
    Entry,
    step_size,
    whole_step,
)
from landscape_cli.checkpoints.damage import DamagedError

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}


@dataclass(frozen=True, eq=False)
class SafetensorsEntry(Entry):
    """One tensor of an open safetensors file."""

    file: Any
    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    def load(self) -> Tensor:
        """Return a view of the mapped file."""
        tensor: Tensor = self.file.get_tensor(self.name)
        return tensor


def read_file(path: Path) -> tuple[dict[str, SafetensorsEntry], dict[str, str]]:
    """Return the tensors of a file by name, and its metadata."""
    file: Any = safe_open(str(path), framework="pt")
    names = list(file.keys())
    return {name: _entry(file, name) for name in names}, dict(file.metadata() or {})


def _entry(file: Any, name: str) -> SafetensorsEntry:
    view = file.get_slice(name)
    kind = view.get_dtype()
    if kind not in _DTYPES:
        raise DamagedError(f"tensors of type {kind} cannot be read")
    return SafetensorsEntry(file, name, tuple(view.get_shape()), _DTYPES[kind])


def open_file(path: Path) -> Contents:
    """Describe a single safetensors file."""
    entries, metadata = read_file(path)
    return describe_entries(entries, metadata, (path,))


def describe_entries(
    entries: Entries, metadata: dict[str, str], files: tuple[Path, ...]
) -> Contents:
    """Return contents with the training step and learning rate that the metadata give."""
    return Contents(
        format="safetensors",
        sets={DEFAULT: entries},
        files=files,
        training_step=whole_step(metadata.get("training_step")),
        learning_rate=step_size(metadata.get("learning_rate")),
        metadata=metadata,
    )
