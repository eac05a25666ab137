"""A data set in memory, converted batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.utils.data import Dataset

Convert = Callable[[Tensor], Tensor]
DType = Literal["float32", "float64"]


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """Inputs and targets along axis 0, with `convert` applied to what is asked for only.

    Args:
        inputs: shape (N, …), of any type, uint8 images say.
        targets: shape (N, …).
        convert: turns a batch of stored inputs, shape (B, …), into what the model takes.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, convert: Convert | None = None) -> None:
        if len(inputs) != len(targets):
            raise ValueError(f"{len(inputs)} inputs and {len(targets)} targets")
        self.inputs = inputs
        self.targets = targets
        self._convert = convert

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Return the samples at `indices`, gathered and converted together."""
        chosen = torch.as_tensor(indices, dtype=torch.long)
        inputs = self.inputs[chosen]
        if self._convert is not None:
            inputs = self._convert(inputs)
        return list(zip(inputs.unbind(), self.targets[chosen].unbind(), strict=True))
