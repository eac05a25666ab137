"""Layers: which there are, in which order a forward pass uses them, and what goes in and out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from landscape_cli.objective import Objective

ROOT = "(model)"
"""Label of the model itself where it has parameters of its own."""

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
Uses = list[list[Tensor]]
"""One tensor per layer and use of it in a forward pass."""


def affine_layers(model: nn.Module, *, transposed: bool = True) -> dict[str, nn.Module]:
    """Return the dense and convolutional modules of `model` by name, each module once."""
    kinds = (nn.Linear, *CONVOLUTIONS, *(TRANSPOSED if transposed else ()))
    return {
        name or ROOT: module for name, module in model.named_modules() if isinstance(module, kinds)
    }


@dataclass(frozen=True)
class Layer:
    """A module with trainable parameters of its own that the forward pass uses.

    Attributes:
        name: the module's name.
        positions: which of the objective's parameters it has; a tied one belongs to the first
            layer that uses it, a parametrised one to the module whose weight it makes.
    """

    name: str
    positions: tuple[int, ...]


def parameter_layers(objective: Objective) -> list[Layer]:
    """Return the layers in the order of their first use in the forward pass.

    The order is that in which operations first take a layer's tensors, so that modules whose
    weights are used without calling them (as attention does) are found as well. What the loss
    reaches without any operation that can be watched comes last, in the order of definition.
    """
    seen = _first_uses(objective)
    reached = set(objective.parameters.names) - set(objective.unreached)
    names = objective.parameters.names
    unwatched = [i for i, name in enumerate(names) if i not in seen and name in reached]
    owners = dict(seen)
    for position in unwatched:
        owners[position] = _owner_name(names[position])
    grouped: dict[str, list[int]] = {}
    for position, owner in owners.items():
        grouped.setdefault(owner, []).append(position)
    return [Layer(name, tuple(sorted(positions))) for name, positions in grouped.items()]


def _owner_name(parameter: str) -> str:
    """Return the module that a parameter's name says it belongs to."""
    module = parameter.rpartition(".")[0]
    return f".{module}".split(".parametrizations.", 1)[0].removeprefix(".") or ROOT


def _first_uses(objective: Objective) -> dict[int, str]:
    """Return the owner of every parameter that the first batch's forward pass uses, in order."""
    tensors = objective.parameters.tensors
    owners: dict[int, list[str]] = {id(tensor): [] for tensor in tensors}
    for name, parameter in objective.model.named_parameters(remove_duplicate=False):
        if id(parameter) in owners:
            owners[id(parameter)].append(_owner_name(name))
    positions = {id(tensor): index for index, tensor in enumerate(tensors)}
    with _running_modules(objective.model) as running:
        watch = _Watch(owners, running)
        with torch.no_grad(), objective.still(0), watch:
            objective.total_at(0, tensors)
    return {positions[key]: owner for key, owner in watch.found.items()}


@contextmanager
def _running_modules(model: nn.Module) -> Iterator[list[str]]:
    """Keep the names of the modules whose forward is running, the innermost last."""
    running: list[str] = []
    handles = []
    for name, module in model.named_modules():
        label = name or ROOT

        def enter(*_: Any, label: str = label) -> None:
            running.append(label)

        def leave(*_: Any) -> None:
            running.pop()

        handles.append(module.register_forward_pre_hook(enter))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        yield running
    finally:
        for handle in handles:
            handle.remove()


class _Watch(TorchFunctionMode):
    """Notes the first operation that takes each tensor, and the module it runs in."""

    def __init__(self, owners: Mapping[int, list[str]], running: list[str]) -> None:
        super().__init__()
        self.found: dict[int, str] = {}
        self._owners = owners
        self._running = running

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        if not _is_attribute(func):
            for tensor in _flat_tensors((*args, *keywords.values())):
                self._note(id(tensor))
        return func(*args, **keywords)

    def _note(self, key: int) -> None:
        if key not in self._owners or key in self.found:
            return
        owners = self._owners[key]
        inside = [name for name in reversed(self._running) if name in owners]
        self.found[key] = (inside or owners)[0]


def _is_attribute(func: Any) -> bool:
    """Whether a call only asks for an attribute such as the shape."""
    return getattr(func, "__name__", "") == "__get__"


def _flat_tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _flat_tensors(value)


Receiver = Callable[[int, Uses, list[list[Tensor | None]]], None]


class OutputTap:
    """Takes the outputs of layers, and the gradients there, from evaluations of an objective.

    The rest of the network is given a copy of each output, so that an operation in place does
    not change what was taken.

    Args:
        modules: the layers.
        receive: called once a batch with its number, the outputs and the gradients of the
            batch's summed loss by them, one list of uses per layer.
    """

    def __init__(self, modules: Sequence[nn.Module], receive: Receiver) -> None:
        self._modules = tuple(modules)
        self._receive = receive
        self._batch = 0
        self.outputs: Uses = []

    @contextmanager
    def listen(self, batch: int) -> Iterator[None]:
        """Take the outputs of the forward pass that runs meanwhile."""
        self._batch = batch
        self.outputs = [[] for _ in self._modules]
        handles = [
            module.register_forward_hook(_taker(uses))
            for module, uses in zip(self._modules, self.outputs, strict=True)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def tensors(self) -> list[Tensor]:
        """Return the outputs, one layer after the other."""
        return [tensor for uses in self.outputs for tensor in uses]

    def receive(self, gradients: Sequence[Tensor | None]) -> None:
        """Hand outputs and gradients on, and forget them."""
        remaining = iter(gradients)
        sorted_out = [[next(remaining) for _ in uses] for uses in self.outputs]
        outputs = [[tensor.detach() for tensor in uses] for uses in self.outputs]
        self.outputs = []
        self._receive(self._batch, outputs, sorted_out)


def _taker(uses: list[Tensor]) -> Any:
    def hook(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor:
        # A layer that does not train, fed by data, has outputs without a history: they start one.
        taken = output if output.requires_grad else output.detach().requires_grad_()
        uses.append(taken)
        return taken.clone()

    return hook


@contextmanager
def listening_to_inputs(modules: Sequence[nn.Module]) -> Iterator[Uses]:
    """Yield one list per module that collects the first input of each use, copied."""
    inputs: Uses = [[] for _ in modules]

    def listener(uses: list[Tensor]) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            first = args[0] if args else next(iter(kwargs.values()), None)
            if isinstance(first, Tensor):
                uses.append(first.detach().clone())

        return hook

    handles = [
        module.register_forward_pre_hook(listener(uses), with_kwargs=True)
        for module, uses in zip(modules, inputs, strict=True)
    ]
    try:
        yield inputs
    finally:
        for handle in handles:
            handle.remove()
