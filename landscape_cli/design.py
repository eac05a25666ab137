"""What a dense or convolutional layer multiplies its weights by: one row per output position."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from landscape_cli.layers import CONVOLUTIONS

MATRIX_ELEMENTS = 1 << 26
"""Numbers in a design matrix, 512 MiB in float64, above which a layer is left out."""


def weight_count(module: nn.Module) -> int:
    """Return how many weights one unit of a dense or convolutional layer has, without its bias."""
    if isinstance(module, CONVOLUTIONS):
        return module.in_channels // module.groups * math.prod(module.kernel_size)
    assert isinstance(module, nn.Linear)
    return module.in_features


def unit_count(module: nn.Module) -> int:
    """Return how many units (output features or channels) a layer has."""
    if isinstance(module, CONVOLUTIONS):
        return module.out_channels
    assert isinstance(module, nn.Linear)
    return module.out_features


def group_of(module: nn.Module, unit: int) -> int:
    """Return which group of input channels a unit looks at; 0 where there are no groups."""
    if isinstance(module, CONVOLUTIONS):
        return unit // (module.out_channels // module.groups)
    return 0


def matrix_elements(module: nn.Module, inputs: Tensor) -> int:
    """Return how many numbers the design matrix has, for a convolution about how many."""
    positions = inputs.numel() // inputs.shape[-1]
    if isinstance(module, CONVOLUTIONS):
        positions = len(inputs) * math.prod(inputs.shape[2:]) // math.prod(module.stride)
    return positions * weight_count(module)


def design_matrix(module: nn.Module, inputs: Tensor, group: int = 0) -> Tensor:
    """Return H with a_d = H·w_d + b_d for every unit d of a group: shape (N, positions, weights).

    Weights are in the order of ``weight[d].flatten()``. For a convolution, a row holds the part
    of the padded feature map under the kernel (Lange et al. 2022, §4, eq. 16 to 18); stride,
    dilation, padding of any mode and groups are the layer's own.

    Args:
        module: an `nn.Linear` or an unpadded, padded, strided, … `nn.Conv1d`, 2d or 3d.
        inputs: what the layer was given, N examples on the first axis.
        group: which group of input channels.
    """
    if not isinstance(module, CONVOLUTIONS):
        return inputs.reshape(len(inputs), -1, inputs.shape[-1])
    channels = module.in_channels // module.groups
    part = inputs[:, group * channels : (group + 1) * channels]
    taps = _taps(module, channels).to(device=inputs.device, dtype=inputs.dtype)
    with torch.no_grad():
        rows: Tensor = taps(part).flatten(2).transpose(1, 2)
    return rows


def _taps(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, channels: int) -> nn.Module:
    """Return a convolution that copies every entry under the kernel to a channel of its own."""
    size = math.prod(module.kernel_size)
    taps = type(module)(
        channels,
        channels * size,
        module.kernel_size,  # type: ignore[arg-type]
        stride=module.stride,  # type: ignore[arg-type]
        padding=module.padding,  # type: ignore[arg-type]
        dilation=module.dilation,  # type: ignore[arg-type]
        groups=channels,
        bias=False,
        padding_mode=module.padding_mode,
        dtype=torch.float64,
    )
    pattern = torch.eye(size, dtype=torch.float64).reshape(size, 1, *module.kernel_size)
    with torch.no_grad():
        taps.weight.copy_(pattern.repeat(channels, *[1] * (pattern.dim() - 1)))
    return taps


def by_unit(values: Tensor, module: nn.Module) -> Tensor:
    """Return a layer's outputs (or what is shaped like them) as (N, positions, units)."""
    if isinstance(module, CONVOLUTIONS):
        return values.flatten(2).transpose(1, 2)
    return values.reshape(len(values), -1, values.shape[-1])
