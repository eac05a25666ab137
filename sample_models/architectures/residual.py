"""The residual blocks of two 3×3 convolutions, in their two orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional

from sample_models.architectures.activations import make_activation

if TYPE_CHECKING:
    from sample_models.architectures.style import Style


def has_bias(style: Style) -> bool:
    """Whether a convolution needs a bias: unless a norm right behind it would remove it."""
    return style.norm in ("none", "weight") or style.norm_position == "after"


class BasicBlock(nn.Module):
    """convolution, norm, activation, convolution, norm; plus the input; activation.

    With the norm after the activation: convolution, activation, norm, convolution; plus the
    input; activation, norm.
    """

    def __init__(
        self, before: int, after: int, *, stride: int, shortcut: str, style: Style
    ) -> None:
        super().__init__()
        bias = has_bias(style)
        self.conv1 = style.hidden(_convolution(before, after, stride, bias=bias))
        self.step1 = style.activate(after, 2)
        self.conv2 = style.hidden(_convolution(after, after, 1, bias=bias))
        self.norm2 = style.norm_layer(after, 2)
        self.activation = make_activation(style.activation)
        self.shortcut = _shortcut(before, after, stride, shortcut, style)
        if isinstance(self.shortcut, nn.Sequential) and style.norm_position == "before":
            self.shortcut.append(style.norm_layer(after, 2))
        self.norm_first = style.norm_position == "before"

    def forward(self, images: Tensor) -> Tensor:
        """Return the features, shape (N, after, H/stride, W/stride)."""
        hidden = self.conv2(self.step1(self.conv1(images)))
        features: Tensor
        if self.norm_first:
            features = self.activation(self.norm2(hidden) + self.shortcut(images))
        else:
            features = self.norm2(self.activation(hidden + self.shortcut(images)))
        return features


class PreactivationBlock(nn.Module):
    """norm, activation, convolution, norm, activation, convolution; plus the input.

    A projection shortcut starts from the activated input, any other from the input itself.
    """

    def __init__(
        self, before: int, after: int, *, stride: int, shortcut: str, style: Style
    ) -> None:
        super().__init__()
        self.step1 = style.activate(before, 2)
        self.conv1 = style.hidden(_convolution(before, after, stride, bias=has_bias(style)))
        self.step2 = style.activate(after, 2)
        self.conv2 = style.hidden(_convolution(after, after, 1, bias=has_bias(style)))
        self.shortcut = _shortcut(before, after, stride, shortcut, style)
        self.projects = isinstance(self.shortcut, nn.Sequential)

    def forward(self, images: Tensor) -> Tensor:
        """Return the features, shape (N, after, H/stride, W/stride)."""
        active = self.step1(images)
        hidden = self.conv2(self.step2(self.conv1(active)))
        features: Tensor = hidden + self.shortcut(active if self.projects else images)
        return features


class PadShortcut(nn.Module):
    """Every second pixel, with zeros for the channels that are new: no weights."""

    def __init__(self, before: int, after: int, *, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.new = after - before

    def forward(self, images: Tensor) -> Tensor:
        """Return the thinned images, half of the new channels before and half behind."""
        thinned = images[:, :, :: self.stride, :: self.stride]
        return functional.pad(thinned, (0, 0, 0, 0, self.new // 2, self.new - self.new // 2))


def _convolution(before: int, after: int, stride: int, *, bias: bool) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=bias)


def _shortcut(before: int, after: int, stride: int, kind: str, style: Style) -> nn.Module:
    if before == after and stride == 1:
        return nn.Identity()
    if kind == "pad":
        return PadShortcut(before, after, stride=stride)
    layer = nn.Conv2d(before, after, 1, stride=stride, bias=False)
    return nn.Sequential(style.hidden(layer))
