"""Single statements about BatchNorm, checked by direct computation in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape_cli import checkpoints
from landscape_cli.adapters.building import build_model
from landscape_cli.norm_layers import uses_batch


@dataclass(frozen=True)
class Minimax:
    """Theorem 4.4 for one random unit: the left side, and the right side in two forms.

    Attributes:
        left: max over ‖X‖ ≤ λ of ‖∇_w L̂‖² = λ²·‖∇_y L̂‖².
        corrected: λ²γ²/σ²·(‖∇L‖² − ⟨1, ∇L⟩²/m − ⟨∇L, ŷ⟩²/m).
        printed: γ²/σ²·(g² − mμ² − λ²⟨∇L, ŷ⟩²) with g = λ²‖∇L‖² and μ the mean of ∇L.
    """

    left: float
    corrected: float
    printed: float


def minimax_sides(seed: int, *, samples: int = 32, features: int = 6) -> Minimax:
    """Return both sides of Theorem 4.4 for a unit with random inputs, weights and loss.

    The loss is the mean over the samples of a convex function of z = γŷ + β with random targets.

    Reference:
        Santurkar et al. (2018), Theorem 4.4 and its proof.
    """
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, features, generator=draw, dtype=torch.float64)
    weights = torch.randn(features, generator=draw, dtype=torch.float64)
    targets = torch.randn(samples, generator=draw, dtype=torch.float64)
    gamma = 0.5 + torch.rand((), generator=draw, dtype=torch.float64)
    entered = (inputs @ weights).requires_grad_()
    deviation = entered.std(correction=0)
    normalised = (entered - entered.mean()) / deviation
    output = gamma * normalised
    loss = functional.softplus(output * targets).mean()
    slope, behind = torch.autograd.grad(loss, [entered, output])
    scale, inner = gamma**2 / deviation**2, behind @ normalised
    bound = torch.linalg.matrix_norm(inputs, 2)
    squared = behind.square().sum()
    corrected = squared - (behind.sum() ** 2 + inner**2) / samples
    largest = bound**2 * squared
    printed = largest**2 - samples * behind.mean() ** 2 - bound**2 * inner**2
    sides = (bound**2 * slope.square().sum(), bound**2 * scale * corrected, scale * printed)
    return Minimax(*(float(side.detach()) for side in sides))


def activation_difference(
    plain: str, normalised: str, checkpoint: Path, inputs: Tensor
) -> tuple[float, float]:
    """Return how far a BatchNorm network with γ = σ, β = μ is from the network without.

    The weights are those of the checkpoint in both. Each BatchNorm layer is given the mean and
    deviation of what enters it, layer by layer in one forward pass.

    Args:
        plain: spec of the network without.
        normalised: spec of the network with.
        checkpoint: of the network without.
        inputs: one batch.

    Returns:
        The largest difference of the outputs over their largest magnitude, and the largest change
        of γ or β that it took.

    Reference:
        Santurkar et al. (2018), Observation 4.3.
    """
    without, with_norm = (build_model(spec).double().train() for spec in (plain, normalised))
    checkpoints.load_into(without, checkpoints.read(checkpoint))
    shared = without.state_dict()
    with_norm.load_state_dict({**with_norm.state_dict(), **shared})
    moved = [0.0]
    handles = [
        module.register_forward_pre_hook(_identity_setter(moved))
        for module in with_norm.modules()
        if uses_batch(module)
    ]
    with torch.no_grad():
        expected, found = without(inputs.double()), with_norm(inputs.double())
    for handle in handles:
        handle.remove()
    return float((found - expected).abs().max() / expected.abs().max()), max(moved)


def _identity_setter(moved: list[float]) -> Any:
    """Return a hook that sets γ and β so that the layer hands its input on."""

    def hook(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        axes = [0, *range(2, args[0].dim())]
        variance, mean = torch.var_mean(args[0], dim=axes, correction=0)
        deviation = (variance + module.eps).sqrt()  # type: ignore[operator]
        for parameter, value in ((module.weight, deviation), (module.bias, mean)):
            moved.append(float((parameter - value).abs().max()))  # type: ignore[operator]
            parameter.copy_(value)  # type: ignore[operator]

    return hook


@dataclass(frozen=True)
class Initialisation:
    """Lemma 4.5 for one random unit.

    Attributes:
        left: ‖W₀ − Ŵ*‖².
        right: ‖W₀ − W*‖² − (‖W*‖² − ⟨W*, W₀⟩)²/‖W*‖².
        slope: ‖∇L̂(Ŵ*)‖ over ‖∇L̂(W₀)‖: 0 says that Ŵ* is an optimum with BatchNorm.
    """

    left: float
    right: float
    slope: float


def initialisation_sides(seed: int, *, samples: int = 64, features: int = 8) -> Initialisation:
    """Return both sides of Lemma 4.5 for a linear unit on least squares.

    W* is the least-squares solution, W₀ random with ⟨W₀, W*⟩ > 0, Ŵ* = kW* the nearest of its
    multiples; γ and β are those that let BatchNorm represent W*.

    Reference:
        Santurkar et al. (2018), Lemma 4.5.
    """
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, features, generator=draw, dtype=torch.float64)
    targets = torch.randn(samples, generator=draw, dtype=torch.float64)
    start = torch.randn(features, generator=draw, dtype=torch.float64)
    centred = inputs - inputs.mean(0)
    best = torch.linalg.lstsq(centred, (targets - targets.mean())[:, None]).solution[:, 0]
    start = start if start @ best > 0 else -start
    nearest = (best @ start) / (best @ best) * best
    gamma = (centred @ best).std(correction=0)

    def slope_at(weights: Tensor) -> float:
        weights = weights.clone().requires_grad_()
        entered = centred @ weights
        output = gamma * entered / entered.std(correction=0) + targets.mean()
        (slope,) = torch.autograd.grad((output - targets).square().mean(), weights)
        return float(slope.norm())

    gap = (best @ best - best @ start) ** 2 / (best @ best)
    return Initialisation(
        left=float((start - nearest).square().sum()),
        right=float((start - best).square().sum() - gap),
        slope=slope_at(nearest) / max(slope_at(start), math.ulp(0.0)),
    )
