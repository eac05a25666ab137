"""The 5-layer convolutional network of Lange et al."""

from __future__ import annotations

import itertools
from typing import Literal

import torch
from torch import Tensor, nn

from landscape_cli.errors import AdapterError
from sample_models.architectures.style import Style
from sample_models.options import require_at_least


class CNN(nn.Module):
    """Three 3×3 convolutions, 2×2 pooling after each but the last, then two dense layers.

    Args:
        channels: of the convolutions.
        hidden: width of the first dense layer.
        classes: number of outputs.
        in_channels: channels of the images, shape (N, in_channels, H, W).
        image_size: H = W.
        padding: ``same`` (zeros around, as the paper's analysis has it; fits small images) or
            ``valid`` (none, as the tutorial it takes the network from has it).
        style: normalisation, activation, initialisation; the norm after activation and pooling
            unless it says otherwise.

    Raises:
        AdapterError: If nothing of the image is left before the dense layers.

    Reference:
        Lange et al. (2022), §5: channels 32-64-32 "followed by two dense layers", after the
        TensorFlow tutorial, which has 64 units between them.
    """

    default_style = Style(norm_position="after")

    def __init__(
        self,
        channels: tuple[int, ...] = (32, 64, 32),
        *,
        hidden: int = 64,
        classes: int = 10,
        in_channels: int = 3,
        image_size: int = 32,
        padding: Literal["same", "valid"] = "same",
        style: Style = default_style,
    ) -> None:
        super().__init__()
        require_at_least(1, hidden=hidden, classes=classes, in_channels=in_channels)
        require_at_least(1, channels=min(channels, default=0), image_size=image_size)
        size = _final_size(image_size, len(channels), padding)
        self.features = _features((in_channels, *channels), padding, style)
        self.hidden = style.block(nn.Linear(channels[-1] * size * size, hidden))
        self.output = style.initialised(nn.Linear(hidden, classes))

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores, shape (N, classes)."""
        scores: Tensor = self.output(self.hidden(torch.flatten(self.features(images), 1)))
        return scores


def _features(sizes: tuple[int, ...], padding: str, style: Style) -> nn.Sequential:
    last = len(sizes) - 2
    blocks = []
    for index, (before, after) in enumerate(itertools.pairwise(sizes)):
        pool = nn.MaxPool2d(2) if index < last else None
        blocks.append(style.block(nn.Conv2d(before, after, 3, padding=padding), pool=pool))
    return nn.Sequential(*blocks)


def _final_size(image_size: int, layers: int, padding: str) -> int:
    size = image_size
    for index in range(layers):
        size -= 2 if padding == "valid" else 0
        size //= 2 if index < layers - 1 else 1
    if size < 1:
        raise AdapterError(
            "nothing of the image is left before the dense layers",
            seen=f"image_size={image_size}, padding={padding}, {layers} convolutions",
            hint="a larger image_size, or padding=same",
        )
    return size
