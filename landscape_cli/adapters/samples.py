"""A data set over two arrays, which may be mapped from a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

WIDER = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}
"""What unsigned types become that PyTorch hardly calculates with."""


class ArraySamples(Dataset[tuple[Tensor, Tensor]]):
    """Pairs of an input and a target, read when they are asked for.

    Args:
        inputs: shape (samples, …).
        targets: shape (samples, …).
    """

    def __init__(self, inputs: np.ndarray | Tensor, targets: np.ndarray | Tensor) -> None:
        self.inputs = inputs
        self.targets = targets

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return _tensor(self.inputs[index]), _tensor(self.targets[index])

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        return [self[index] for index in indices]


def _tensor(sample: Any) -> Tensor:
    if isinstance(sample, Tensor):
        return sample
    dtype = np.dtype(WIDER.get(sample.dtype.name, sample.dtype)).newbyteorder("=")
    # A mapped sample is read-only, and lies anywhere in its file: a copy is neither.
    return torch.from_numpy(np.array(sample, dtype=dtype))
