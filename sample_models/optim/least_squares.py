"""Gradient descent on ordinary least squares, plain and with batch normalisation, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from landscape_cli.errors import SpecError


@dataclass(frozen=True)
class Moments:
    """All that the loss ½E[(y − xᵀw)²] depends on, where E[x] = 0.

    Attributes:
        H: E[xxᵀ], shape (d, d), float64, positive definite.
        g: E[xy], shape (d,).
        c: E[y²].
    """

    H: Tensor
    g: Tensor
    c: float

    @classmethod
    def of(cls, inputs: Tensor, targets: Tensor) -> Moments:
        """Return the moments of data: inputs of shape (N, d), targets (N,) or (N, 1).

        Raises:
            SpecError: If the inputs are not centred, where E[xxᵀ] is not what BatchNorm
                divides by, or span fewer than d dimensions.
        """
        x, y = inputs.double(), targets.double().reshape(len(inputs))
        shift, spread = x.mean(0).abs().max(), x.std(0, correction=0).max()
        if shift > 1e-6 * spread:
            raise SpecError(
                "the inputs of least squares are not centred",
                seen=f"a mean of {float(shift):.3g}",
                hint="subtract their mean",
            )
        moments = cls(x.T @ x / len(x), x.T @ y / len(x), float(y.square().mean()))
        if torch.linalg.matrix_rank(moments.H, hermitian=True) < len(moments.g):
            raise SpecError(
                "the inputs of least squares do not span their space",
                seen=f"{len(x)} samples of {len(moments.g)} features",
                hint="more samples, or fewer features",
            )
        return moments

    @property
    def solution(self) -> Tensor:
        """The minimiser u = H⁻¹g of the plain loss, shape (d,)."""
        solution: Tensor = torch.linalg.solve(self.H, self.g)
        return solution

    @property
    def minimum(self) -> float:
        """The smallest loss of either model, ½(c − gᵀH⁻¹g)."""
        return 0.5 * (self.c - float(self.g @ self.solution))

    @property
    def largest_step(self) -> float:
        """Plain descent converges below 2/λ_max(H); above it, from almost no start."""
        return 2 / float(torch.linalg.eigvalsh(self.H)[-1])

    @property
    def normalised_hessian(self) -> Tensor:
        """The matrix H* = H − H u uᵀ H/(uᵀHu), shape (d, d), whose null space is u's line.

        Near the minimisers w = s·u, descent with BatchNorm contracts as I − ε̂H* does. Its
        condition number over the nonzero spectrum is never above that of H.
        """
        Hu = self.H @ self.solution
        return self.H - torch.outer(Hu, Hu) / (self.solution @ Hu)


@dataclass(frozen=True)
class Descent:
    """K descents at once, one per step size.

    Attributes:
        losses: before the first and after every step, shape (steps + 1, K).
        weights: w after the last step, shape (K, d).
        scales: a after the last step, shape (K,); None without BatchNorm.
    """

    losses: Tensor
    weights: Tensor
    scales: Tensor | None = None


def descend(
    moments: Moments, start: Tensor, step_sizes: Sequence[float] | Tensor, steps: int
) -> Descent:
    """Minimise J₀(w) = ½E[(y − xᵀw)²] by w ← w + ε(g − Hw).

    Args:
        moments: of the data.
        start: w₀, shape (d,).
        step_sizes: ε, shape (K,).
        steps: how many.

    Returns:
        The descents; where one diverges its losses grow and become infinite or NaN.

    Reference:
        Cai, Li and Shen (2019), "OLS regression without BN".
    """
    rates = _column(step_sizes)
    weights = start.double().repeat(len(rates), 1)
    losses = [_plain_loss(moments, weights)]
    for _ in range(steps):
        weights = weights + rates * (moments.g - weights @ moments.H)
        losses.append(_plain_loss(moments, weights))
    return Descent(torch.stack(losses), weights)


def descend_normalised(
    moments: Moments,
    start: Tensor,
    step_sizes: Sequence[float] | Tensor,
    steps: int,
    *,
    scale: float = 1.0,
    scale_step_size: float | Tensor = 1.0,
) -> Descent:
    """Minimise J(a, w) = ½E[(y − a·N(xᵀw))²] by gradient descent in a and w at once.

    With σ² = wᵀHw, a ← a + ε_a(wᵀg/σ − a) and w ← w + (εa/σ)(g − (wᵀg/σ²)Hw). It converges
    for every ε > 0, provided that ε_a ≤ 1.

    Args:
        moments: of the data.
        start: w₀, shape (d,), not zero.
        step_sizes: ε, shape (K,).
        steps: how many.
        scale: a₀.
        scale_step_size: ε_a, a number or shape (K,).

    Raises:
        SpecError: If w₀ is zero, where nothing can be normalised.

    Reference:
        Cai, Li and Shen (2019), "OLS regression with BN".
    """
    if not bool(start.any()):
        raise SpecError("the first weights are zero", seen="w₀ = 0", hint="draw them at random")
    rates = _column(step_sizes)
    scale_rates = torch.as_tensor(scale_step_size, dtype=torch.float64)
    weights = start.double().repeat(len(rates), 1)
    scales = torch.full((len(rates),), float(scale), dtype=torch.float64)
    losses = [_normalised_loss(moments, scales, weights)]
    for _ in range(steps):
        Hw = weights @ moments.H
        deviation = (weights * Hw).sum(1).sqrt()
        slope = weights @ moments.g / deviation
        pull = moments.g - (slope / deviation).unsqueeze(1) * Hw
        weights = weights + rates * (scales / deviation).unsqueeze(1) * pull
        scales = scales + scale_rates * (slope - scales)
        losses.append(_normalised_loss(moments, scales, weights))
    return Descent(torch.stack(losses), weights, scales)


def effective_step_size(
    moments: Moments, descent: Descent, step_sizes: Sequence[float] | Tensor
) -> Tensor:
    """Return ε̂ = ε·a·wᵀg/σ³ at the end of descents with BatchNorm, shape (K,).

    It is the step size that plain descent on a loss of Hessian H* would have: w grows where ε is
    large, until ε̂ is small enough.

    Raises:
        SpecError: If the descents are without BatchNorm.
    """
    if descent.scales is None:
        raise SpecError(
            "plain descent has no effective step size", seen="no scales", hint="descend_normalised"
        )
    variance = (descent.weights @ moments.H * descent.weights).sum(1)
    slopes = descent.weights @ moments.g
    return _column(step_sizes).squeeze(1) * descent.scales * slopes / variance**1.5


def _column(step_sizes: Sequence[float] | Tensor) -> Tensor:
    return torch.as_tensor(step_sizes, dtype=torch.float64).unsqueeze(1)


def _plain_loss(moments: Moments, weights: Tensor) -> Tensor:
    curved = (weights @ moments.H * weights).sum(1)
    return 0.5 * (moments.c - 2 * weights @ moments.g + curved)


def _normalised_loss(moments: Moments, scales: Tensor, weights: Tensor) -> Tensor:
    deviation = (weights @ moments.H * weights).sum(1).sqrt()
    return 0.5 * (moments.c - 2 * scales * (weights @ moments.g) / deviation + scales**2)
