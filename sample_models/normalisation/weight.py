"""Weight normalisation: a layer's weights instead of its outputs."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

Layer = TypeVar("Layer", bound=nn.Module)


class WeightNorm(nn.Module):
    """W = g·V/‖V‖₂ per output unit, over all axes but the first.

    A parametrisation of ``weight`` in plain operations, which can be differentiated any number
    of times.

    Reference:
        Salimans and Kingma (2016), eq. 2.
    """

    def forward(self, magnitudes: Tensor, directions: Tensor) -> Tensor:
        """Return W from g, shape (units, 1, …), and V, shape (units, …)."""
        return directions * (magnitudes / _lengths(directions))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the g and V that give `weight`: g = ‖W‖₂ and V = W."""
        return _lengths(weight), weight


def _lengths(weight: Tensor) -> Tensor:
    axes = tuple(range(1, weight.dim()))
    lengths: Tensor = torch.linalg.vector_norm(weight, dim=axes, keepdim=True)
    return lengths


def normalise_weight(layer: Layer) -> Layer:
    """Return the layer with its weight parametrised by `WeightNorm`, at the same value."""
    parametrize.register_parametrization(layer, "weight", WeightNorm())
    return layer


def make_weight(features: int, dims: int) -> nn.Module:  # noqa: ARG001 - every maker takes both
    """Return a layer that hands its input on: the weights before it are normalised instead."""
    return nn.Identity()
