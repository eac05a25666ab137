"""The buffers of a model: which of them a forward pass changes, and putting them back."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Buffers:
    """The buffers of a model with the values they had when this was made.

    Args:
        model: the module; its buffers stay the same tensors.
    """

    def __init__(self, model: nn.Module) -> None:
        self._owners = [
            (module, name, buffer)
            for module in model.modules()
            for name, buffer in module.named_buffers(recurse=False)
        ]
        self._values = [buffer.detach().clone() for _, _, buffer in self._owners]
        self._volatile: set[int] = set()

    @property
    def volatile(self) -> bool:
        """Whether any buffer changes by itself."""
        return bool(self._volatile)

    def find_volatile(self) -> None:
        """Note the buffers that differ from their first value, and put them back."""
        for position, (module, name, buffer) in enumerate(self._owners):
            present = getattr(module, name)
            if present is not buffer or not _same(present, self._values[position]):
                self._volatile.add(position)
        self.reset_volatile()

    def reset_volatile(self) -> None:
        """Put the buffers that change by themselves back to their first value."""
        for position in self._volatile:
            self._reset(position)

    def restore(self) -> None:
        """Put every buffer back, the same tensor with the same bits."""
        for position, (module, name, buffer) in enumerate(self._owners):
            present = getattr(module, name)
            if present is not buffer or not _same(buffer, self._values[position]):
                self._reset(position)

    def _reset(self, position: int) -> None:
        module, name, buffer = self._owners[position]
        with torch.no_grad():
            buffer.copy_(self._values[position])
        setattr(module, name, buffer)


def _same(first: Tensor, second: Tensor) -> bool:
    """Whether two buffers are equal bit for bit, NaN and the sign of zero included."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    return torch.equal(_bytes(first), _bytes(second))


def _bytes(tensor: Tensor) -> Tensor:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else flat
