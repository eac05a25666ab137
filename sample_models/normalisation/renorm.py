"""Batch renormalisation: training sees what evaluation will, within limits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sample_models.normalisation.statistics import (
    BatchStatisticsNorm,
    at_least_float32,
    batch_axes,
    per_feature,
)
from sample_models.options import require_at_least


class BatchRenorm(BatchStatisticsNorm):
    """y = γ·((x − μ_B)/σ_B · r + d) + β, with σ_B = √(biased variance + ε).

    r = clip(σ_B/σ, 1/r_max, r_max) and d = clip((μ_B − μ)/σ, −d_max, d_max) hold the batch's
    statistics to the running μ and σ, and are constants in every gradient. Inside the limits
    that is (x − μ)/σ, what evaluation mode gives; with r_max = 1 and d_max = 0 it is batch
    normalisation. The limits open linearly: r_max from 1, d_max from 0, from step `warmup` to
    the steps `r_end` and `d_end`; with all three at 0 they are open from the start.

    Args:
        features: size of axis 1.
        r_max: final limit of r, 1 or more.
        d_max: final limit of d, 0 or more.
        warmup: number of steps of plain batch normalisation.
        ends: the steps at which r_max and d_max are reached.
        options: those of `BatchStatisticsNorm`.

    Reference:
        Ioffe (2017), Algorithm 1; limits and schedule from its §4, moving averages at 0.01.
    """

    running_mean: Tensor
    running_deviation: Tensor

    def __init__(
        self,
        features: int,
        *,
        r_max: float = 3.0,
        d_max: float = 5.0,
        warmup: int = 5000,
        ends: tuple[int, int] = (40000, 25000),
        **options: Any,
    ) -> None:
        super().__init__(features, **options)
        require_at_least(1, r_max=r_max)
        require_at_least(0, d_max=d_max, warmup=warmup, r_end=ends[0], d_end=ends[1])
        self.r_max, self.d_max, self.warmup, self.ends = r_max, d_max, warmup, ends
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_deviation", torch.ones(features))

    def batch_statistics(self, input: Tensor) -> tuple[Tensor, Tensor]:  # noqa: A002
        """Return μ_B and σ_B, shape (features,) each."""
        values = at_least_float32(input)
        variance, mean = torch.var_mean(values, dim=batch_axes(values), correction=0)
        return mean, torch.sqrt(variance + self.eps)

    def running_statistics(self) -> tuple[Tensor, Tensor]:
        """Return the running μ and σ."""
        return self.running_mean, self.running_deviation

    def limits(self) -> tuple[Tensor, Tensor]:
        """Return r_max and d_max as they are at the present step."""
        opened = [self._opened(end) for end in self.ends]
        return 1 + (self.r_max - 1) * opened[0], self.d_max * opened[1]

    def _opened(self, end: int) -> Tensor:
        steps = self.num_batches_tracked.to(self.running_mean.dtype) + 1 - self.warmup
        return (steps / max(end + 1 - self.warmup, 1)).clamp(0, 1)

    def normalise(self, values: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        """Return (values − μ_B)/σ_B · r + d; with the running statistics, r is 1 and d is 0."""
        mean, deviation = statistics
        r, d = self._corrections(mean.detach(), deviation.detach())
        standard = (values - per_feature(mean, values)) / per_feature(deviation, values)
        return standard * per_feature(r, values) + per_feature(d, values)

    def _corrections(self, mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
        r_max, d_max = self.limits()
        r = (deviation / self.running_deviation).clamp(1 / r_max, r_max)
        d = ((mean - self.running_mean) / self.running_deviation).clamp(-d_max, d_max)
        return r, d

    def extra_repr(self) -> str:
        """Return what the layer was made with."""
        schedule = f"warmup={self.warmup}, ends={self.ends}"
        return f"{super().extra_repr()}, r_max={self.r_max}, d_max={self.d_max}, {schedule}"


def make_renorm(
    features: int,
    dims: int,  # noqa: ARG001 - every maker takes both
    *,
    r_max: float = 3.0,
    d_max: float = 5.0,
    warmup: int = 5000,
    r_end: int = 40000,
    d_end: int = 25000,
    momentum: float = 0.01,
) -> nn.Module:
    """Return batch renormalisation (`BatchRenorm`), with Ioffe's constants unless told."""
    return BatchRenorm(
        features, r_max=r_max, d_max=d_max, warmup=warmup, ends=(r_end, d_end), momentum=momentum
    )
