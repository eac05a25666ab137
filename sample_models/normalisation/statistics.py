"""What layers of our own that normalise by the whole batch have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from sample_models.options import require_at_least


class BatchStatisticsNorm(nn.Module, ABC):
    """Normalise every feature by statistics: of the batch, of the past, or given ones.

    In training mode they are the batch's own, gradients flow through them, and running
    statistics follow, s ← (1 − momentum)·s + momentum·s_B; in evaluation mode they are the
    running ones. With `fixed_statistics` set, those are used as constants in either mode, and
    no buffer changes. Statistics are computed in float32 at least.

    Args:
        features: size of axis 1 of the input, shape (N, features, …).
        eps: ε, keeps the divisor from zero.
        momentum: share of the batch in the running statistics.
        affine: whether a scale γ and a shift β are trained behind the normalisation.

    Attributes:
        fixed_statistics: what `batch_statistics` returned for some input, or None.
        track_running_stats: whether training mode updates the buffers.
    """

    fixed_statistics: tuple[Tensor, ...] | None
    num_batches_tracked: Tensor

    def __init__(
        self, features: int, *, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True
    ) -> None:
        super().__init__()
        require_at_least(0, eps=eps, momentum=momentum)
        self.features = features
        self.eps = eps
        self.momentum = momentum
        self.track_running_stats = True
        self.fixed_statistics = None
        self.weight = nn.Parameter(torch.ones(features)) if affine else None
        self.bias = nn.Parameter(torch.zeros(features)) if affine else None
        self.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.long))

    @abstractmethod
    def batch_statistics(self, input: Tensor) -> tuple[Tensor, ...]:  # noqa: A002 - torch's name
        """Return the statistics of `input` that training mode uses, each of shape (features,)."""

    @abstractmethod
    def running_statistics(self) -> tuple[Tensor, ...]:
        """Return the buffers that follow `batch_statistics`, in its order."""

    @abstractmethod
    def normalise(self, values: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        """Return the values, shape (N, features, …), normalised by the statistics."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Return the normalised input, of its shape and type."""
        values = at_least_float32(input)
        if self.fixed_statistics is not None:
            outputs = self.normalise(values, tuple(s.detach() for s in self.fixed_statistics))
        elif self.training:
            statistics = self.batch_statistics(values)
            outputs = self.normalise(values, statistics)
            if self.track_running_stats:
                self._follow(statistics)
        else:
            outputs = self.normalise(values, self.running_statistics())
        return self._rescale(outputs).to(input.dtype)

    def _follow(self, statistics: tuple[Tensor, ...]) -> None:
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            for running, seen in zip(self.running_statistics(), statistics, strict=True):
                running.lerp_(seen.to(running.dtype), self.momentum)

    def _rescale(self, values: Tensor) -> Tensor:
        if self.weight is None or self.bias is None:
            return values
        return values * per_feature(self.weight, values) + per_feature(self.bias, values)

    def extra_repr(self) -> str:
        """Return what the layer was made with."""
        affine = self.weight is not None
        return f"{self.features}, eps={self.eps}, momentum={self.momentum}, affine={affine}"


def at_least_float32(values: Tensor) -> Tensor:
    """Return the values, in float32 if their type has fewer digits."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def batch_axes(values: Tensor) -> list[int]:
    """Return every axis but that of the features: samples, height and width count alike."""
    return [axis for axis in range(values.dim()) if axis != 1]


def per_feature(vector: Tensor, values: Tensor) -> Tensor:
    """Return a vector over features shaped to broadcast against `values`."""
    return vector.reshape(-1, *[1] * (values.dim() - 2))
