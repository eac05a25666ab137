"""Stored bytes to what a network takes: floats, standardised, and augmented if asked."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Standardised:
    """uint8 pixels, shape (B, C, H, W), to float32 (pixel/255 − mean)/deviation per channel."""

    means: tuple[float, ...]
    deviations: tuple[float, ...]

    def __call__(self, pixels: Tensor) -> Tensor:
        """Return the standardised images."""
        means = torch.tensor(self.means).reshape(1, -1, 1, 1)
        deviations = torch.tensor(self.deviations).reshape(1, -1, 1, 1)
        return (pixels.to(torch.float32) / 255 - means) / deviations


def scaled(pixels: Tensor) -> Tensor:
    """Return uint8 pixels as float32 in [0, 1]."""
    return pixels.to(torch.float32) / 255


@dataclass(frozen=True)
class Augmented:
    """Shift every image by up to `margin` pixels, zeros moving in, and mirror half of them.

    Drawn from torch's global generator, so that a sample is another one at every access. The
    zeros are those of the standardised image.

    Reference:
        He et al. (2016a), §4.2: four pixels, a random crop, a horizontal flip.
    """

    convert: Standardised
    margin: int = 4

    def __call__(self, pixels: Tensor) -> Tensor:
        """Return the augmented images, of the same shape."""
        images = self.convert(pixels)
        count, _, height, width = images.shape
        padded = functional.pad(images, [self.margin] * 4)
        rows = self._shifts(count) + torch.arange(height)
        columns = self._shifts(count) + torch.arange(width)
        mirrored = torch.rand(count, 1) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
        moved = padded.permute(0, 2, 3, 1)[
            torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]
        ]
        return moved.permute(0, 3, 1, 2)

    def _shifts(self, count: int) -> Tensor:
        return torch.randint(2 * self.margin + 1, (count, 1))
