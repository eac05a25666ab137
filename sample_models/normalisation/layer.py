"""Layer normalisation: every sample by its own features."""

from __future__ import annotations

from torch import nn


def make_layer(features: int, dims: int, *, eps: float = 1e-5, affine: bool = True) -> nn.Module:
    """Return layer normalisation, over the features and every axis behind them.

    For images that is group normalisation with one group: mean and variance over channels,
    height and width, with a scale and shift per channel.

    Args:
        features: size of axis 1.
        dims: number of axes after the features.
        eps: added to the variance.
        affine: whether scale and shift are trained.

    Reference:
        Ba, Kiros and Hinton (2016); Wu and He (2018), §3.
    """
    if dims == 0:
        return nn.LayerNorm(features, eps=eps, elementwise_affine=affine)
    return nn.GroupNorm(1, features, eps=eps, affine=affine)
