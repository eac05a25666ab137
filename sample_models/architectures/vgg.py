"""The VGG-like network of Santurkar et al.: 3×3 convolutions, halved in size by pooling."""

from __future__ import annotations

import itertools
from typing import Literal

from torch import Tensor, nn

from landscape_cli.errors import AdapterError
from sample_models.architectures.style import Style
from sample_models.options import require_at_least

POOL = "M"

_MULTIPLES: dict[int, tuple[tuple[int, int], ...]] = {
    11: ((1, 1), (2, 1), (4, 2), (8, 2), (8, 2)),
    13: ((1, 2), (2, 2), (4, 2), (8, 2), (8, 2)),
    16: ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3)),
    19: ((1, 2), (2, 2), (4, 4), (8, 4), (8, 4)),
}


class VGG(nn.Module):
    """A VGG network for small images, with one dense layer on the averaged features.

    Poolings halve the image, rounding up; one that would meet a single pixel is left out, so
    that images of any size pass. With width 64 and 32×32 images this is the usual CIFAR form.

    Args:
        depth: 11, 13, 16 or 19: configurations A, B, D and E.
        width: channels of the first stage; the others have 2, 4, 8 and 8 times as many.
        config: instead of depth and width, channels in order with ``M`` for a pooling:
            ``8,M,16,M``.
        head: widths of dense layers between the features and the output.
        classes: number of outputs.
        in_channels: channels of the images, shape (N, in_channels, H, W).
        image_size: H = W, decides which poolings are left out.
        style: normalisation, activation, initialisation.

    Raises:
        AdapterError: If the configuration has no convolution or a size is not positive.

    Reference:
        Simonyan and Zisserman (2015), Table 1; Santurkar et al. (2018), Appendix A.1.
    """

    default_style = Style()

    def __init__(
        self,
        depth: Literal[11, 13, 16, 19] = 11,
        *,
        width: int = 64,
        config: tuple[int | Literal["M"], ...] | None = None,
        head: tuple[int, ...] = (),
        classes: int = 10,
        in_channels: int = 3,
        image_size: int = 32,
        style: Style = default_style,
    ) -> None:
        super().__init__()
        require_at_least(1, width=width, classes=classes, in_channels=in_channels)
        require_at_least(1, image_size=image_size)
        plan = config if config is not None else _plan(depth, width)
        _check_plan(plan)
        self.features = _features(plan, in_channels, image_size, style)
        self.pool = nn.AdaptiveAvgPool2d(1)
        sizes = [_last_width(plan), *head]
        require_at_least(1, head=min(sizes))
        hidden = itertools.pairwise(sizes)
        self.head = nn.Sequential(*(style.block(nn.Linear(*pair)) for pair in hidden))
        self.output = style.initialised(nn.Linear(sizes[-1], classes))

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores, shape (N, classes)."""
        features: Tensor = self.pool(self.features(images)).flatten(1)
        scores: Tensor = self.output(self.head(features))
        return scores


def _plan(depth: int, width: int) -> tuple[int | str, ...]:
    plan: list[int | str] = []
    for multiple, layers in _MULTIPLES[depth]:
        plan += [multiple * width] * layers + [POOL]
    return tuple(plan)


def _check_plan(plan: tuple[int | str, ...]) -> None:
    widths = [item for item in plan if isinstance(item, int)]
    if not widths or plan[0] == POOL or min(widths) < 1 or (POOL, POOL) in _pairs(plan):
        raise AdapterError(
            "the VGG configuration is not channels with M for a pooling behind them",
            seen=",".join(str(item) for item in plan) or "(nothing)",
            hint="config=8,M,16,M",
        )


def _pairs(plan: tuple[int | str, ...]) -> list[tuple[int | str, int | str]]:
    return list(itertools.pairwise(plan))


def _last_width(plan: tuple[int | str, ...]) -> int:
    return [item for item in plan if isinstance(item, int)][-1]


def _features(plan: tuple[int | str, ...], channels: int, size: int, style: Style) -> nn.Sequential:
    blocks = []
    followers = (*plan[1:], None)
    for item, follower in zip(plan, followers, strict=True):
        if not isinstance(item, int):
            continue
        pooled = follower == POOL and size > 1
        pool = nn.MaxPool2d(2, ceil_mode=True) if pooled else None
        blocks.append(style.block(nn.Conv2d(channels, item, 3, padding=1), pool=pool))
        channels, size = item, (size + 1) // 2 if pooled else size
    return nn.Sequential(*blocks)
