"""Residual networks: the CIFAR form of any depth 6n+2, and ResNet-18."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from landscape_cli.errors import AdapterError
from sample_models.architectures.residual import BasicBlock, PreactivationBlock, has_bias
from sample_models.architectures.style import Style
from sample_models.options import require_at_least

Shortcut = Literal["pad", "projection"]


@dataclass(frozen=True)
class _Plan:
    """Widths and numbers of blocks of the stages, and the form of the blocks."""

    widths: tuple[int, ...]
    blocks: tuple[int, ...]
    preactivation: bool
    shortcut: Shortcut


class _ResNet(nn.Module):
    """A stem, stages of blocks, an average over the image, one dense layer."""

    def __init__(self, stem: nn.Module, plan: _Plan, *, classes: int, style: Style) -> None:
        super().__init__()
        self.stem = stem
        self.stages = nn.Sequential(*_stages(plan, style))
        last = plan.widths[-1]
        self.final = style.activate(last, 2) if plan.preactivation else nn.Sequential()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.output = style.initialised(nn.Linear(last, classes))

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores, shape (N, classes), of images of shape (N, in_channels, H, W)."""
        features = self.final(self.stages(self.stem(images)))
        scores: Tensor = self.output(self.pool(features).flatten(1))
        return scores


class ResNet(_ResNet):
    """The residual network for small images: three stages of widths w, 2w and 4w.

    Args:
        depth: number of layers, 6n + 2: 20, 32, 44, 56, 110, …
        width: channels w of the first stage.
        classes: number of outputs.
        in_channels: channels of the images.
        preactivation: norm and activation before each convolution instead of behind it.
        shortcut: where size and width change, ``pad`` (every second pixel, zeros for new
            channels, no weights) or ``projection`` (a 1×1 convolution).
        style: normalisation, activation, initialisation; He's normal one unless it says
            otherwise. With ``norm_position=after`` a norm follows each activation.

    Raises:
        AdapterError: If the depth has no such form.

    Reference:
        He et al. (2016a), §4.2, with option A; He et al. (2016b), Fig. 1b.
    """

    default_style = Style(init="he-normal")

    def __init__(
        self,
        depth: int = 20,
        *,
        width: int = 16,
        classes: int = 10,
        in_channels: int = 3,
        preactivation: bool = False,
        shortcut: Shortcut = "pad",
        style: Style = default_style,
    ) -> None:
        require_at_least(1, width=width, classes=classes, in_channels=in_channels)
        if depth < 8 or (depth - 2) % 6:
            raise AdapterError(
                "a residual network of three stages has 6n + 2 layers",
                seen=f"depth={depth}",
                hint="depth=20, 32, 44, 56 or 110",
            )
        blocks = ((depth - 2) // 6,) * 3
        plan = _Plan((width, 2 * width, 4 * width), blocks, preactivation, shortcut)
        stem = _small_stem(in_channels, plan, style)
        super().__init__(stem, plan, classes=classes, style=style)


class ResNet18(_ResNet):
    """ResNet-18: four stages of two blocks, of widths w, 2w, 4w and 8w.

    Args:
        width: channels w of the first stage.
        stem: ``cifar`` (a 3×3 convolution) or ``imagenet`` (7×7 in steps of two, then pooling).
        classes: number of outputs.
        in_channels: channels of the images.
        preactivation: norm and activation before each convolution instead of behind it.
        shortcut: as in `ResNet`.
        style: as in `ResNet`.

    Reference:
        He et al. (2016a), Table 1, with option B.
    """

    default_style = Style(init="he-normal")

    def __init__(
        self,
        width: int = 64,
        *,
        stem: Literal["cifar", "imagenet"] = "cifar",
        classes: int = 10,
        in_channels: int = 3,
        preactivation: bool = False,
        shortcut: Shortcut = "projection",
        style: Style = default_style,
    ) -> None:
        require_at_least(1, width=width, classes=classes, in_channels=in_channels)
        widths = (width, 2 * width, 4 * width, 8 * width)
        plan = _Plan(widths, (2, 2, 2, 2), preactivation, shortcut)
        entrance = (
            _large_stem(in_channels, width, style)
            if stem == "imagenet"
            else _small_stem(in_channels, plan, style)
        )
        super().__init__(entrance, plan, classes=classes, style=style)


def _stages(plan: _Plan, style: Style) -> list[nn.Module]:
    block = PreactivationBlock if plan.preactivation else BasicBlock
    stages: list[nn.Module] = []
    before = plan.widths[0]
    for index, (width, count) in enumerate(zip(plan.widths, plan.blocks, strict=True)):
        blocks = []
        for number in range(count):
            stride = 2 if index > 0 and number == 0 else 1
            blocks.append(block(before, width, stride=stride, shortcut=plan.shortcut, style=style))
            before = width
        stages.append(nn.Sequential(*blocks))
    return stages


def _small_stem(channels: int, plan: _Plan, style: Style) -> nn.Module:
    layer = nn.Conv2d(channels, plan.widths[0], 3, padding=1, bias=has_bias(style))
    if plan.preactivation:
        return nn.Sequential(OrderedDict(layer=style.hidden(layer)))
    return style.block(layer)


def _large_stem(channels: int, width: int, style: Style) -> nn.Module:
    layer = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=has_bias(style))
    return style.block(layer, pool=nn.MaxPool2d(3, stride=2, padding=1))
