"""Synthetic images in classes: something to train on where there is no data set."""

from __future__ import annotations

import torch
from torch.nn import functional

from sample_models.data.samples import Samples
from sample_models.options import require_at_least, require_seed

_COARSE = 4


def make_images(
    samples: int = 1000,
    *,
    classes: int = 10,
    channels: int = 3,
    image_size: int = 32,
    noise: float = 1.0,
    seed: int = 0,
) -> Samples:
    """Return noisy copies of one smooth random image per class.

    A class's image is 4×4 standard normal values, enlarged bilinearly and scaled to unit
    variance; a sample is that image plus pixelwise normal noise. Classes are equally frequent,
    in random order.

    Args:
        samples: number of images N.
        classes: number of classes.
        channels: of the images, shape (N, channels, image_size, image_size), float32.
        image_size: height and width.
        noise: deviation of the noise, in units of the class image's.
        seed: decides everything.
    """
    require_at_least(1, samples=samples, classes=classes, channels=channels)
    require_at_least(1, image_size=image_size)
    require_at_least(0, noise=noise)
    require_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(classes, channels, _COARSE, _COARSE, generator=generator)
    size = (image_size, image_size)
    smooth = functional.interpolate(coarse, size, mode="bilinear", align_corners=False)
    templates = smooth / smooth.square().mean((1, 2, 3), keepdim=True).sqrt()
    labels = torch.randperm(samples, generator=generator) % classes
    disturbance = torch.randn(samples, channels, *size, generator=generator)
    return Samples(templates[labels] + noise * disturbance, labels)
