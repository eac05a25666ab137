"""Channels-last weights: the order in memory in which a CPU convolves fastest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

WIDEST = 256
"""Channels up to which convolutions gained on every CPU tried; wider ones lost on some of them."""


def prefers_channels_last(model: nn.Module) -> bool:
    """Whether the model has 2-D convolutions that are faster with the channels last."""
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    if not convolutions:
        return False
    weight = convolutions[0].weight
    if weight.device.type != "cpu":
        return weight.dtype == torch.bfloat16
    return max(module.out_channels for module in convolutions) <= WIDEST


@contextmanager
def channels_last(model: nn.Module, *, keep: bool) -> Iterator[None]:
    """Lay the four-dimensional parameters out with the channels last.

    Args:
        model: the module; its parameters stay the same objects.
        keep: whether the original memory is kept and filled again afterwards, as somebody else
            may hold views of it; that costs one more copy of these weights.
    """
    changed: list[tuple[nn.Parameter, Tensor | None]] = []
    try:
        for parameter in model.parameters():
            if parameter.dim() == 4:
                changed.append((parameter, parameter.data if keep else None))
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        yield
    finally:
        with torch.no_grad():
            for parameter, original in changed:
                if original is None:
                    parameter.data = parameter.data.contiguous()
                else:
                    original.copy_(parameter.data)
                    parameter.data = original


def with_channels_last(tensor: Tensor) -> Tensor:
    """Return images with their channels last in memory; other tensors as they are."""
    if tensor.dim() == 4 and tensor.is_floating_point():
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor
