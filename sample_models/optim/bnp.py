"""Batch normalisation preconditioning: the effect of BatchNorm on gradients, without its layer."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from landscape_cli.errors import SpecError
from sample_models.optim.input_statistics import (
    LAYERS,
    Collector,
    InputStatistics,
    Layer,
    groups,
)


class BNP:
    """Preconditions the gradients of dense and convolutional layers before an optimizer's step.

    Per layer, with μ and σ² the running mean and variance of its inputs h, and per unit the
    gradient (g_b, g_w) of its bias and weights:

        μ ← ρμ + (1−ρ)·mean(h),   σ² ← ρσ² + (1−ρ)·var(h),   σ̃² = σ² + ε₁·max σ² + ε₂
        (g_b, g_w) ← P Pᵀ (g_b, g_w) / q²,   P = [1 −μᵀ; 0 I] · diag(1, 1/σ̃)

    which costs g_w ← (g_w − μ g_b)/(q² σ̃²) and g_b ← g_b/q² − μᵀg_w. For a convolution, mean and
    variance are per channel over the feature maps, padding left out, and μ is the same for every
    entry of the kernel. q² = max{n k²/N, √(r s)} with n inputs of k² kernel entries per unit, N
    samples and r·s positions of an output; for a dense layer that is max{n/N, 1}. With a single
    value per input (batch size 1) the variance is (h − μ)² about the running mean before the
    step, which h has not moved yet.

    The optimizer stays as it is, and its own ``step`` does all of it: schedulers, momentum and
    weight decay work on the preconditioned gradients. Forward passes with gradients enabled
    count from one step to the next, several of them together; so evaluate under
    ``torch.no_grad()``. Those of a `landscape_cli.record.LiveProbe` do not count.

    What has no place in the derivation is left as it is, or done in part: other layers keep
    their gradients; so do weights that several layers share, and weights that are computed from
    others. Without a trained bias only the scaling remains, g_w ← g_w/(q² σ̃²), which is the block
    of P Pᵀ for the weights.

    Args:
        model: its dense and convolutional layers are listened to.
        optimizer: over the model's parameters.
        epsilon1: ε₁.
        epsilon2: ε₂.
        rho: ρ, from 0 (this batch's own statistics) to below 1.
        q_squared: q² of every layer; None as above.

    Attributes:
        optimizer: the one that was given.
        skipped: names of the dense and convolutional layers whose gradients stay as they are.

    Raises:
        SpecError: If a number is out of its range, or the model has no such layer.

    Reference:
        Lange, Helfrich and Ye (2022), Algorithms 2 and 3, §3.3 and §4.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1))
        >>> bnp = BNP(model, torch.optim.SGD(model.parameters(), lr=0.1))
        >>> model(torch.randn(8, 3)).square().mean().backward()
        >>> bnp.optimizer.step()  # preconditioned
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        epsilon1: float = 1e-2,
        epsilon2: float = 1e-4,
        rho: float = 0.99,
        q_squared: float | None = None,
    ) -> None:
        _check("epsilon1", epsilon1, epsilon1 >= 0, "0 or more")
        _check("epsilon2", epsilon2, epsilon2 >= 0, "0 or more")
        _check("rho", rho, 0 <= rho < 1, "from 0 to below 1")
        _check("q_squared", q_squared, q_squared is None or q_squared > 0, "above 0")
        self.optimizer = optimizer
        self._epsilons = (epsilon1, epsilon2)
        self._rho = rho
        self._q_squared = q_squared
        chosen, self.skipped = _find_layers(model)
        if not chosen:
            raise SpecError(
                "the model has no layer to precondition",
                seen=type(model).__name__,
                hint="BNP is for dense and convolutional layers with weights that train",
            )
        self._layers = {name: _Preconditioned(layer) for name, layer in chosen.items()}
        self._handles: list[Any] = [
            layer.register_forward_hook(self._layers[name].collector.listen)
            for name, layer in chosen.items()
        ]
        self._handles.append(optimizer.register_step_pre_hook(self._before_step))

    def step(self) -> None:
        """Precondition and update: the optimizer's own ``step``."""
        self.optimizer.step()

    def zero_grad(self) -> None:
        """Clear the gradients: the optimizer's own ``zero_grad``."""
        self.optimizer.zero_grad()

    def precondition(self) -> None:
        """Replace the gradients in place and move the running statistics on.

        Runs by itself in every ``step`` of the optimizer.
        """
        for state in self._layers.values():
            statistics = state.collector.take()
            if statistics is None or state.layer.weight.grad is None:
                continue
            state.move_on(statistics, self._rho)
            self._apply(state, statistics)

    def remove(self) -> None:
        """Stop listening; the optimizer is an ordinary one again."""
        for handle in self._handles:
            handle.remove()

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Return the running means and variances by layer."""
        return {
            name: {"mean": state.mean, "variance": state.variance}
            for name, state in self._layers.items()
        }

    def load_state_dict(self, state: dict[str, dict[str, Tensor]]) -> None:
        """Go on from what `state_dict` returned."""
        for name, layer in self._layers.items():
            layer.mean.copy_(state[name]["mean"])
            layer.variance.copy_(state[name]["variance"])

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        del optimizer
        if len(args) > 1 or kwargs.get("closure") is not None:
            raise SpecError(
                "BNP cannot precondition inside a closure",
                seen="step(closure)",
                hint="call backward() first, then step() without arguments",
            )
        self.precondition()

    def _apply(self, state: _Preconditioned, statistics: InputStatistics) -> None:
        epsilon1, epsilon2 = self._epsilons
        layer = state.layer
        variance = state.variance + epsilon1 * state.variance.max() + epsilon2
        q_squared = self._q_squared or default_q_squared(layer, statistics)
        bias = None if layer.bias is None else layer.bias.grad
        _precondition(layer, bias, Scaling(state.mean, variance, q_squared))


@dataclass(frozen=True)
class Scaling:
    """μ, σ̃² (shape (n,) each) and q² of one layer in one step."""

    mean: Tensor
    variance: Tensor
    q_squared: float


def default_q_squared(layer: Layer, statistics: InputStatistics) -> float:
    """Return q² = max{n k²/N, √(r s)}, for n inputs of k² kernel entries that one unit sees."""
    fan_in = layer.weight[0].numel()
    return max(fan_in / statistics.samples, math.sqrt(statistics.outputs))


def _precondition(layer: Layer, bias: Tensor | None, scaling: Scaling) -> None:
    """Replace (g_b, g_w) by P Pᵀ (g_b, g_w)/q² in place; groups see inputs of their own."""
    weight = layer.weight.grad
    if weight is None:
        return
    count = groups(layer)
    # Axes: group, unit of the group, input of the group, entry of the kernel.
    mean = scaling.mean.reshape(count, 1, -1, 1)
    variance = scaling.variance.reshape(count, 1, -1, 1)
    gradient = weight.reshape(count, weight.shape[0] // count, weight.shape[1], -1)
    if bias is not None:
        gradient = gradient - mean * bias.reshape(count, -1, 1, 1)
    gradient = gradient / (scaling.q_squared * variance)
    weight.copy_(gradient.reshape(weight.shape))
    if bias is not None:
        bias.copy_(bias / scaling.q_squared - (mean * gradient).sum((2, 3)).reshape(-1))


class _Preconditioned:
    """A layer and the running statistics of its inputs."""

    def __init__(self, layer: Layer) -> None:
        inputs = layer.weight.shape[1] * groups(layer)
        kind = torch.promote_types(layer.weight.dtype, torch.float32)
        self.layer = layer
        self.collector = Collector()
        self.mean = torch.zeros(inputs, dtype=kind, device=layer.weight.device)
        self.variance = torch.ones_like(self.mean)

    def move_on(self, statistics: InputStatistics, rho: float) -> None:
        """Let the statistics of a step into the running ones."""
        mean, variance = (
            value.to(self.mean.dtype) for value in (statistics.mean, statistics.variance)
        )
        before, spread = self.mean.to(mean.device), self.variance.to(mean.device)
        if statistics.values == 1:
            variance = (mean - before).square()
        self.mean = rho * before + (1 - rho) * mean
        self.variance = rho * spread + (1 - rho) * variance


def _find_layers(model: nn.Module) -> tuple[dict[str, Layer], tuple[str, ...]]:
    """Return the layers whose weights are theirs alone, and the names of the others."""
    uses = Counter(
        id(tensor) for module in model.modules() for tensor in module.parameters(recurse=False)
    )
    chosen: dict[str, Layer] = {}
    skipped = []
    for name, module in model.named_modules():
        if not isinstance(module, LAYERS):
            continue
        own = [t for t in (module.weight, module.bias) if t is not None]
        plain = all(isinstance(tensor, nn.Parameter) and uses[id(tensor)] == 1 for tensor in own)
        if plain and module.weight.requires_grad:
            chosen[name] = module
        else:
            skipped.append(name)
    return chosen, tuple(skipped)


def _check(name: str, value: float | None, fits: bool, hint: str) -> None:  # noqa: FBT001
    if not fits:
        raise SpecError(f"{name} of BNP is out of its range", seen=value, hint=hint)
