"""Normalisation by the batch's average ℓ1, ℓ2 or ℓ∞ norm instead of its deviation."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from sample_models.normalisation.statistics import (
    BatchStatisticsNorm,
    at_least_float32,
    batch_axes,
    per_feature,
)

Order = Literal["l1", "l2", "linf"]


class LpNorm(BatchStatisticsNorm):
    """y = γ·(x − μ)/√(m_p² + ε) + β, with m_p the average ℓp norm of a feature over the batch.

    m_p is the power mean over the m values of the feature: (1/m)·Σ|v| for ℓ1, √((1/m)·Σv²) for
    ℓ2, max|v| for ℓ∞. The paper fixes the mean "and then normalizes them by the average of
    their ℓp-norm (before shifting the mean)", which can be read in two ways:

    - ``centred=False``, the default: v = x, the norm from before the mean was shifted away;
    - ``centred=True``: v = x − μ, where ℓ2 is batch normalisation itself.

    The first is the default since the paper holds ℓ2 against batch normalisation as another
    scheme. ε stands under the root for every p, so that a feature that is zero throughout is
    divided by √ε as in batch normalisation, and stays differentiable.

    Args:
        features: size of axis 1.
        order: ``l1``, ``l2`` or ``linf``.
        centred: which of the two readings.
        options: those of `BatchStatisticsNorm`.

    Reference:
        Santurkar et al. (2018), §3.3.
    """

    running_mean: Tensor
    running_norm_square: Tensor

    def __init__(
        self, features: int, *, order: Order, centred: bool = False, **options: Any
    ) -> None:
        super().__init__(features, **options)
        self.order = order
        self.centred = centred
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_norm_square", torch.ones(features))

    def batch_statistics(self, input: Tensor) -> tuple[Tensor, Tensor]:  # noqa: A002
        """Return μ and m_p², shape (features,) each."""
        values = at_least_float32(input)
        mean = values.mean(batch_axes(values))
        measured = values - per_feature(mean, values) if self.centred else values
        return mean, self._norm_square(measured)

    def _norm_square(self, values: Tensor) -> Tensor:
        axes = batch_axes(values)
        if self.order == "l1":
            return values.abs().mean(axes).square()
        if self.order == "l2":
            return values.square().mean(axes)
        return values.abs().amax(axes).square()

    def running_statistics(self) -> tuple[Tensor, Tensor]:
        """Return the running μ and m_p²."""
        return self.running_mean, self.running_norm_square

    def normalise(self, values: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        """Return (values − μ)/√(m_p² + ε)."""
        mean, norm_square = statistics
        scale = torch.rsqrt(norm_square + self.eps)
        return (values - per_feature(mean, values)) * per_feature(scale, values)

    def extra_repr(self) -> str:
        """Return what the layer was made with."""
        return f"{super().extra_repr()}, order={self.order}, centred={self.centred}"


def make_lp(
    features: int,
    dims: int,  # noqa: ARG001 - every maker takes both
    *,
    order: Order,
    eps: float = 1e-5,
    momentum: float = 0.1,
    affine: bool = True,
    centred: bool = False,
) -> nn.Module:
    """Return normalisation by the batch's average ℓp norm (`LpNorm`)."""
    return LpNorm(features, order=order, centred=centred, eps=eps, momentum=momentum, affine=affine)
