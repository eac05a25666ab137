"""Layers that look at the whole batch, and what a probe lets them see.

``batch``    they normalise by the batch, and their running statistics are not touched;
``running``  they normalise by their running statistics, as in evaluation;
``frozen``   they normalise by what the batch had at θ₀, as constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.utils.hooks import RemovableHandle

Statistics = tuple[Tensor, ...]


@runtime_checkable
class FixesStatistics(Protocol):
    """A layer of anybody's that can be told which batch statistics to use as constants."""

    fixed_statistics: Statistics | None

    def batch_statistics(self, input: Tensor) -> Statistics:  # noqa: A002 - torch's own name
        """Return the statistics that the layer would use for `input` in training mode."""
        ...


def uses_batch(module: nn.Module) -> bool:
    """Whether the module's output for one example depends on the others in training mode."""
    return isinstance(module, _BatchNorm | FixesStatistics)


def batch_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers of `model` that normalise over the batch, by name."""
    return {name: module for name, module in model.named_modules() if uses_batch(module)}


@contextmanager
def untracked(model: nn.Module) -> Iterator[None]:
    """Normalise by the batch without touching running statistics; the values are the same."""
    tracking = [
        module
        for module in model.modules()
        if uses_batch(module) and getattr(module, "track_running_stats", False)
    ]
    for module in tracking:
        module.track_running_stats = False  # type: ignore[assignment]
    try:
        yield
    finally:
        for module in tracking:
            module.track_running_stats = True  # type: ignore[assignment]


class FrozenStatistics:
    """The statistics of every batch at θ₀, handed to the layers as constants.

    Use: `record` once per batch at θ₀, then `replay` around every evaluation of that batch. A
    layer that is used several times in one forward pass keeps one set per use.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers = list(batch_layers(model).values())
        self._kept: list[dict[int, list[Statistics]]] = []

    @contextmanager
    def record(self) -> Iterator[None]:
        """Keep what the next forward pass normalises by, as one more batch."""
        kept: dict[int, list[Statistics]] = {index: [] for index in range(len(self._layers))}
        handles = [
            layer.register_forward_pre_hook(_recorder(layer, kept[index]))
            for index, layer in enumerate(self._layers)
        ]
        try:
            yield
        finally:
            _remove(handles)
        self._kept.append(kept)

    @contextmanager
    def replay(self, batch: int) -> Iterator[None]:
        """Let one forward pass normalise by what batch number `batch` had at θ₀."""
        restores = [_Override(layer) for layer in self._layers]
        handles = [
            layer.register_forward_pre_hook(_player(layer, iter(self._kept[batch][index])))
            for index, layer in enumerate(self._layers)
        ]
        try:
            yield
        finally:
            _remove(handles)
            for override in restores:
                override.undo()


def _recorder(layer: nn.Module, kept: list[Statistics]) -> Any:
    def hook(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        with torch.no_grad():
            kept.append(tuple(s.detach().clone() for s in _statistics(layer, arguments[0])))

    return hook


def _player(layer: nn.Module, kept: Iterator[Statistics]) -> Any:
    def hook(_: nn.Module, __: tuple[Any, ...]) -> None:
        statistics = next(kept)
        if isinstance(layer, _NormBase):
            layer.running_mean, layer.running_var = statistics
        else:
            layer.fixed_statistics = statistics  # type: ignore[assignment]

    return hook


def _statistics(layer: nn.Module, value: Tensor) -> Statistics:
    """Return mean and biased variance over all axes but the second, summed in float64."""
    if isinstance(layer, FixesStatistics):
        return layer.batch_statistics(value)
    axes = [axis for axis in range(value.dim()) if axis != 1]
    variance, mean = torch.var_mean(value.double(), dim=axes, correction=0)
    return mean.to(value.dtype), variance.to(value.dtype)


class _Override:
    """What a layer was before it was told which statistics to use."""

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer
        if isinstance(layer, _NormBase):
            self._buffers = (layer.running_mean, layer.running_var)
            self._training = layer.training
            layer.training = False
        else:
            self._fixed = layer.fixed_statistics

    def undo(self) -> None:
        if isinstance(self._layer, _NormBase):
            self._layer.running_mean, self._layer.running_var = self._buffers
            self._layer.training = self._training
        else:
            self._layer.fixed_statistics = self._fixed


def _remove(handles: list[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()
