"""Mean and variance of what dense and convolutional layers are given, one pass or several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from landscape_cli.record.measuring import is_measuring

Layer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class InputStatistics:
    """What is known of the inputs of a layer in one training step.

    Attributes:
        samples: N, the examples.
        values: how many values each mean is over: N times the positions of an example.
        outputs: positions of one output: r·s for images, 1 for vectors.
        mean: per input feature or channel, shape (n,).
        variance: biased, over the same values, shape (n,).
    """

    samples: int
    values: int
    outputs: int
    mean: Tensor
    variance: Tensor

    @classmethod
    def of(cls, layer: Layer, inputs: Tensor, output: Tensor) -> InputStatistics:
        """Return the statistics of one forward pass, of a batch or of a single example."""
        values = inputs.detach()
        if isinstance(layer, nn.Linear):
            spatial = 0
            batched = inputs.dim() > 1
            values = values.reshape(-1, inputs.shape[-1])
        else:
            spatial = len(layer.kernel_size)
            batched = inputs.dim() > spatial + 1
        feature = values.dim() - 1 - spatial
        samples = inputs.shape[0] if batched else 1
        count = values.numel() // values.shape[feature]
        return cls(
            samples=samples,
            values=count,
            outputs=math.prod(output.shape[-spatial:]) if spatial else count // samples,
            **_moments(values, [axis for axis in range(values.dim()) if axis != feature]),
        )

    @classmethod
    def merged(cls, parts: Sequence[InputStatistics]) -> InputStatistics:
        """Return the statistics over the values of all parts together."""
        first, *others = parts
        if not others:
            return first
        values = sum(part.values for part in parts)
        shares = first.mean.new_tensor([[part.values / values] for part in parts])
        means = torch.stack([part.mean for part in parts])
        mean = (shares * means).sum(0)
        within = torch.stack([part.variance for part in parts])
        return cls(
            samples=sum(part.samples for part in parts),
            values=values,
            outputs=max(part.outputs for part in parts),
            mean=mean,
            variance=(shares * (within + (means - mean).square())).sum(0),
        )


def _moments(values: Tensor, axes: list[int]) -> dict[str, Tensor]:
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    variance, mean = torch.var_mean(values, dim=axes, correction=0)
    return {"mean": mean, "variance": variance}


class Collector:
    """Listens to a layer and keeps the statistics of its inputs until they are taken.

    Passes without gradients, an evaluation say, are not listened to, nor those of a probe.
    """

    def __init__(self) -> None:
        self._parts: list[InputStatistics] = []

    def listen(self, layer: Layer, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Take note of one forward pass: a hook."""
        counts = torch.is_grad_enabled() and not is_measuring()
        if counts and inputs and inputs[0].numel():
            self._parts.append(InputStatistics.of(layer, inputs[0], output))

    def take(self) -> InputStatistics | None:
        """Return the statistics since the last call; None without a pass."""
        parts, self._parts = self._parts, []
        return InputStatistics.merged(parts) if parts else None


def groups(layer: Layer) -> int:
    """Return how many groups of units see different inputs; 1 for a dense layer."""
    return 1 if isinstance(layer, nn.Linear) else layer.groups
