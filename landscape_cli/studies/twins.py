"""A network with BatchNorm and the plain network that is the same function of one batch.

Proposition 7 of Lange et al.: Ŵ = W·diag(1/σ), b̂ = b − W(μ/σ), for every layer whose inputs a
normalisation without scale and shift has normalised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from landscape_cli.batches import Batch
from landscape_cli.losses import Loss
from landscape_cli.objective import Objective
from landscape_cli.specs import NormMode
from sample_models.architectures import MLP
from sample_models.optim import BNP

Layers = list[tuple[Tensor, Tensor]]
"""Weight and bias of every dense layer, from the first on."""


def dense_layers(model: MLP) -> list[nn.Linear]:
    """Return the dense layers in the order of the forward pass."""
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def layers_of(model: MLP) -> Layers:
    """Return copies of the weights and biases."""
    return [(one.weight.detach().clone(), one.bias.detach().clone()) for one in dense_layers(model)]


@dataclass(frozen=True)
class Statistics:
    """What the normalisations of a network divide by on one batch.

    Attributes:
        means: μ of every normalisation, shape (units,) each.
        deviations: σ, of the biased variance.
    """

    means: Sequence[Tensor]
    deviations: Sequence[Tensor]

    @classmethod
    def of(cls, model: MLP, batch: Batch) -> Statistics:
        """Take them from the inputs of the normalisations, in training mode."""
        seen: list[Tensor] = []

        def listen(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            seen.append(inputs[0].detach())

        norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d)]
        handles = [norm.register_forward_pre_hook(listen) for norm in norms]
        try:
            outputs(model, batch)
        finally:
            for handle in handles:
                handle.remove()
        return cls(
            [values.mean(0) for values in seen],
            [values.var(0, correction=0).sqrt() for values in seen],
        )

    def varies(self) -> list[Tensor]:
        """Return which units are not constant over the batch, shape (units,) each.

        A unit with σ = 0 adds nothing behind its normalisation, and has no plain twin.
        """
        return [deviation > 0 for deviation in self.deviations]

    def fold(self, layers: Layers) -> Layers:
        """Return the layers of the plain network; the first sees the data as they are."""
        folded = [layers[0]]
        for (weight, bias), mean, deviation in zip(
            layers[1:], self.means, self.deviations, strict=True
        ):
            scaled = weight / deviation
            folded.append((scaled, bias - scaled @ mean))
        return folded


def without_units(layers: Layers, kept: Sequence[Tensor]) -> Layers:
    """Return the layers of the network that has only the kept hidden units.

    Args:
        layers: of the whole network.
        kept: per hidden layer, which units stay.
    """
    found = []
    for place, (weight, bias) in enumerate(layers):
        seen = weight if place == 0 else weight[:, kept[place - 1]]
        rows = kept[place] if place < len(kept) else slice(None)
        found.append((seen[rows], bias[rows]))
    return found


def outputs(model: MLP, batch: Batch) -> Tensor:
    """Return the outputs in training mode, without a trace in the running statistics."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.train()
    with torch.no_grad():
        found: Tensor = model(*batch.inputs)
        for name, buffer in model.named_buffers():
            buffer.copy_(before[name])
    return found


def stepped_by_descent(model: MLP, batch: Batch, loss: Loss, lr: float, mode: NormMode) -> Layers:
    """Return the layers after one step of gradient descent.

    Args:
        model: with BatchNorm.
        batch: the gradient is over it.
        loss: of the training.
        lr: the step size.
        mode: ``frozen``: no gradient passes through μ and σ; ``batch``: it does.
    """
    with Objective(model, [batch], loss, norm_mode=mode) as objective:
        _, gradient = objective.value_and_gradient()
        moved = {
            id(parameter): parameter.detach() - lr * slope
            for parameter, slope in zip(objective.parameters.tensors, gradient, strict=True)
        }
    return [(moved[id(one.weight)], moved[id(one.bias)]) for one in dense_layers(model)]


def stepped_by_bnp(twin: MLP, batch: Batch, loss: Loss, lr: float) -> Layers:
    """Return the plain network's layers after one step of BNP with the batch's own statistics.

    The first layer, whose inputs no normalisation has seen, is held fixed.
    """
    first, *_ = dense_layers(twin)
    first.requires_grad_(False)
    trained = [parameter for parameter in twin.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=lr)
    bnp = BNP(twin, optimizer, epsilon1=0.0, epsilon2=0.0, rho=0.0, q_squared=1.0)
    total = loss.total(twin(*batch.inputs), batch) / loss.terms(batch)
    total.backward()  # type: ignore[no-untyped-call]
    bnp.step()
    bnp.remove()
    return layers_of(twin)


def filled(twin: MLP, layers: Layers) -> MLP:
    """Give a network those layers."""
    with torch.no_grad():
        for one, (weight, bias) in zip(dense_layers(twin), layers, strict=True):
            one.weight.copy_(weight)
            one.bias.copy_(bias)
    return twin


def farthest(first: Layers, other: Layers, start: Layers) -> float:
    """Return how far two steps differ, relative to their length: the largest over the layers.

    The first layer is left out.
    """
    ratios = []
    for a, b, origin in zip(first[1:], other[1:], start[1:], strict=True):
        gap = _norm(a, b)
        ratios.append(gap / _norm(a, origin))
    return max(ratios)


def _norm(first: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> float:
    parts = [torch.linalg.vector_norm(a - b) for a, b in zip(first, other, strict=True)]
    return float(torch.linalg.vector_norm(torch.stack(parts)))
