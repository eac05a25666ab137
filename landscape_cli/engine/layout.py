"""The order in memory of images and convolutions: which is faster depends on the processor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

Layout = Literal["contiguous", "channels_last", "mixed"]
"""``mixed`` has the channels last in all but the wide convolutions."""

WIDEST = 256
"""Channels up to which convolutions gained from channels last on every CPU tried; wider ones lost
on some of them."""


def layouts(model: nn.Module) -> tuple[Layout, ...]:
    """Return the layouts that differ for the model, the likeliest first; () where none matters."""
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    if not convolutions:
        return ()
    weight = convolutions[0].weight
    if weight.device.type != "cpu":
        last = weight.dtype == torch.bfloat16
        return ("channels_last", "contiguous") if last else ("contiguous", "channels_last")
    wide = [_is_wide(module) for module in convolutions]
    if all(wide):
        return "contiguous", "channels_last"
    if any(wide):
        return "mixed", "contiguous", "channels_last"
    return "channels_last", "contiguous"


def _is_wide(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d) and module.weight.shape[0] > WIDEST


@contextmanager
def laid_out(model: nn.Module, layout: str, *, keep: bool) -> Iterator[None]:
    """Lay the four-dimensional parameters out for the time of the context.

    Args:
        model: the module; its parameters stay the same objects.
        layout: a `Layout`; the empty string is ``contiguous``.
        keep: whether the original memory is kept and filled again afterwards, as somebody else
            may hold views of it; that costs one more copy of these weights.
    """
    if layout not in ("channels_last", "mixed"):
        yield
        return
    wide = [module for module in model.modules() if layout == "mixed" and _is_wide(module)]
    contiguous = {id(parameter) for module in wide for parameter in module.parameters()}
    changed: list[tuple[nn.Parameter, Tensor | None]] = []
    handles: list[RemovableHandle] = []
    try:
        for parameter in model.parameters():
            if parameter.dim() == 4 and id(parameter) not in contiguous:
                changed.append((parameter, parameter.data if keep else None))
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        handles.extend(m.register_forward_pre_hook(_contiguous_input) for m in wide)
        yield
    finally:
        for handle in handles:
            handle.remove()
        with torch.no_grad():
            for parameter, original in changed:
                if original is None:
                    parameter.data = parameter.data.contiguous()
                else:
                    original.copy_(parameter.data)
                    parameter.data = original


def _contiguous_input(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Let a convolution have its input contiguous, as otherwise it goes by its input's layout."""
    first, *rest = arguments
    return (first.contiguous(), *rest)


def with_channels_last(tensor: Tensor) -> Tensor:
    """Return images with their channels last in memory; other tensors as they are."""
    if tensor.dim() == 4 and tensor.is_floating_point():
        return tensor.contiguous(memory_format=torch.channels_last)
    return tensor
