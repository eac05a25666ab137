"""The same function with its parameters on another scale, and the size of activations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from landscape_cli import batches, checkpoints
from landscape_cli.adapters.building import build_data, build_model
from landscape_cli.studies.workbench import Trained
from landscape_cli.training.evaluation import place


class Divided(nn.Module):
    """A parameter that is stored as c times what the network computes with."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, stored: Tensor) -> Tensor:
        """Return what the network computes with."""
        return stored / self.factor

    def right_inverse(self, used: Tensor) -> Tensor:
        """Return what is stored."""
        return used * self.factor


def rescale(model: nn.Module, factor: float) -> nn.Module:
    """Let every parameter be stored c times as large; the function stays the same, bit for bit.

    Args:
        model: changed in place.
        factor: c; a power of two, so that nothing is rounded.
    """
    for module in list(model.modules()):
        for name, _ in list(module.named_parameters(recurse=False)):
            parametrize.register_parametrization(module, name, Divided(factor))
    return model


def loaded(trained: Trained, position: int, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return the network of one checkpoint of a training, by its position."""
    model = build_model(trained.model).to(dtype)
    checkpoints.load_into(model, checkpoints.read(trained.checkpoints[position]))
    return model


def mean_square_outputs(
    trained: Trained, layers: Sequence[str], *, batch_size: int, seed: int
) -> list[list[float]]:
    """Return the mean of ‖y‖² over the examples of a batch, by checkpoint and layer.

    Args:
        trained: all its checkpoints are taken.
        layers: whose outputs y.
        batch_size: the batch is the one that a probe of that size and seed draws.
        seed: see `batch_size`.
    """
    sample = batches.draw(build_data(trained.data), batch_size, 1, seed)
    found = []
    for position in range(len(trained.checkpoints)):
        model = loaded(trained, position)
        inputs = place(sample.batches[0], model, whole=False).inputs
        found.append(_sizes(model, layers, inputs))
    return found


def _sizes(model: nn.Module, layers: Sequence[str], inputs: Sequence[Tensor]) -> list[float]:
    sizes: dict[str, float] = {}

    def listener(name: str) -> object:
        def listen(_: nn.Module, __: object, output: Tensor) -> None:
            sizes[name] = float(output.double().flatten(1).square().sum(1).mean())

        return listen

    handles = [
        model.get_submodule(name).register_forward_hook(listener(name))  # type: ignore[arg-type]
        for name in layers
    ]
    try:
        with torch.no_grad():
            model.train()(*inputs)
    finally:
        for handle in handles:
            handle.remove()
    return [sizes[name] for name in layers]
