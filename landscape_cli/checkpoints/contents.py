"""What a format finds in a checkpoint, before any tensor is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from landscape_cli.checkpoints.contract import UNKNOWN_STEP

DEFAULT = "default"
"""The weights that are probed unless others are asked for."""


class Entry:
    """One tensor of a checkpoint, described without being loaded."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def load(self) -> Tensor:
        """Return the values: a view of the mapped file where that is possible."""
        raise NotImplementedError


Entries = Mapping[str, Entry]


@dataclass
class Contents:
    """Everything a checkpoint holds, as its format describes it.

    Attributes:
        format: ``safetensors``, ``torch``, ``lightning``, …
        sets: named tensors by the name of their set; ``default`` is always there.
        files: the files that hold the weights, for the hash.
        training_step: −1 where unknown.
        learning_rate: None where unknown.
        notes: what had to be done to read it, one line each.
        metadata: the file's own key-value text.
        family: what the file says of its architecture, empty where it does not.
        optimiser: whether the state of an optimiser is there too.
    """

    format: str
    sets: dict[str, Entries]
    files: tuple[Path, ...]
    training_step: int = UNKNOWN_STEP
    learning_rate: float | None = None
    notes: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    family: str = ""
    optimiser: bool = False


def whole_step(value: Any) -> int:
    """Return a training step, −1 if `value` is not one."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return UNKNOWN_STEP
    is_whole = not isinstance(value, float) or value.is_integer()
    return number if is_whole and 0 <= number < 2**63 else UNKNOWN_STEP


def step_size(value: Any) -> float | None:
    """Return a learning rate that steps can be multiples of, None if `value` is not one."""
    number = _real(value)
    return number if 0 < number < float("inf") else None


def _real(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")
