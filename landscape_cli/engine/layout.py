"""The order in memory of images and convolutions: which is faster depends on the processor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

Layout = Literal["contiguous", "channels_last"]

WIDEST = 256
"""Channels up to which convolutions gained on every CPU tried; wider ones lost on some of them."""


def layouts(model: nn.Module) -> tuple[Layout, ...]:
    """Return the layouts that differ for the model, the likely faster one first; () for none."""
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    if not convolutions:
        return ()
    weight = convolutions[0].weight
    if weight.device.type != "cpu":
        last = weight.dtype == torch.bfloat16
    else:
        last = max(module.out_channels for module in convolutions) <= WIDEST
    return ("channels_last", "contiguous") if last else ("contiguous", "channels_last")


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
