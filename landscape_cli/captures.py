"""BatchNorm layers caught in the graph of a forward pass, with what is in front and behind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from landscape_cli.derivatives import twice_differentiable
from landscape_cli.design import MATRIX_ELEMENTS, matrix_elements
from landscape_cli.layers import ROOT, affine_layers
from landscape_cli.objective import Objective


@dataclass(frozen=True)
class Producer:
    """A dense or convolutional layer, what it was given, and the output it is known by."""

    module: nn.Module
    inputs: Tensor
    output: Tensor


@dataclass
class Capture:
    """A BatchNorm layer in the first batch's graph, at its first use.

    Attributes:
        label: its name.
        module: itself.
        loss: the mean loss of the batch.
        inputs: y, as it entered, part of the graph.
        outputs: z, part of the graph.
        producer: the dense or convolutional layer directly in front, if there is one.
    """

    label: str
    module: _BatchNorm
    loss: Tensor = field(default_factory=lambda: torch.tensor(math.nan))
    inputs: Tensor | None = None
    outputs: Tensor | None = None
    producer: Producer | None = None

    @property
    def count(self) -> int:
        """How many units the layer has."""
        return int(self.module.num_features)


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return the BatchNorm layers of `model` by name."""
    named = model.named_modules()
    return {name or ROOT: module for name, module in named if isinstance(module, _BatchNorm)}


def capture_batch_norms(objective: Objective) -> list[Capture]:
    """Run the first batch and return its BatchNorm layers, those that are used."""
    captures = [Capture(name, module) for name, module in batch_norms(objective.model).items()]
    with (
        twice_differentiable(),
        objective.still(0) as batch,
        torch.enable_grad(),
        _capturing(objective.model, captures),
    ):
        total = objective.total_at(0, objective.parameters.tensors)
    loss = total / (1 if objective.summed else objective.loss.terms(batch))
    used = [capture for capture in captures if capture.inputs is not None]
    for capture in used:
        capture.loss = loss
    return used


@contextmanager
def _capturing(model: nn.Module, captures: Sequence[Capture]) -> Iterator[None]:
    made: dict[int, Producer] = {}
    layers = affine_layers(model, transposed=False).values()
    handles = [layer.register_forward_hook(_noting(made)) for layer in layers]
    for capture in captures:
        handles.append(capture.module.register_forward_pre_hook(_entering(capture, made)))
        handles.append(capture.module.register_forward_hook(_leaving(capture)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _noting(made: dict[int, Producer]) -> Any:
    def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        if not args or matrix_elements(module, args[0]) > MATRIX_ELEMENTS:
            return
        # The output is kept with what made it, so that no other tensor can have its id.
        made[id(output)] = Producer(module, args[0].detach().clone(), output)

    return hook


def _entering(capture: Capture, made: dict[int, Producer]) -> Any:
    def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if capture.inputs is not None or not args:
            return None
        entered = args[0]
        capture.producer = made.get(id(entered))
        capture.inputs = entered if entered.requires_grad else entered.detach().requires_grad_()
        return (capture.inputs.clone(), *args[1:])

    return hook


def _leaving(capture: Capture) -> Any:
    def hook(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor | None:
        if capture.inputs is None or capture.outputs is not None:
            return None
        capture.outputs = output
        return output.clone()

    return hook
