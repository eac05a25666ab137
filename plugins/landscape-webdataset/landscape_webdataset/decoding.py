"""From the bytes of a member to a value: pictures, arrays, numbers. Never a pickle."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

PICTURES = ("jpg", "jpeg", "png", "ppm", "webp")
ARRAYS = ("npy",)
NUMBERS = ("cls", "cls2", "index", "id")
RECORDS = ("json",)
KNOWN = (*PICTURES, *ARRAYS, *NUMBERS, *RECORDS)
"""What members may end on; others, pickles among them, are never read."""


@dataclass(frozen=True)
class Pictures:
    """How pictures become tensors.

    Attributes:
        resize: length of the shorter side, of which the central square is kept; None for as is.
        mean: subtracted from numbers between 0 and 1, one or one per channel.
        std: divided by, the same.
        grey: whether pictures have one channel instead of three.
    """

    resize: int | None = None
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)
    grey: bool = False

    def decode(self, data: bytes) -> Tensor:
        """Return a float32 tensor of shape (channels, height, width)."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as opened:
                picture = opened.convert("L" if self.grey else "RGB")
        if self.resize is not None:
            picture = _square(picture, self.resize)
        pixels = np.array(picture, dtype=np.float32) / 255
        channels = torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1)
        return ((channels - _column(self.mean)) / _column(self.std)).contiguous()


def _square(picture: Image.Image, side: int) -> Image.Image:
    """Return the middle of the picture, its shorter side `side` pixels long."""
    short = min(picture.size)
    width, height = (max(side, round(length * side / short)) for length in picture.size)
    resized = picture.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - side) // 2, (height - side) // 2
    return resized.crop((left, top, left + side, top + side))


def _column(numbers: Sequence[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32).reshape(-1, 1, 1)


def decode(suffix: str, data: bytes, field: str, pictures: Pictures) -> Any:
    """Return what the bytes of a member stand for.

    Args:
        suffix: what its name ends on, one of `KNOWN` after its last dot.
        data: its bytes.
        field: of a ``json`` member, dots leading into it; empty for the whole.
        pictures: how pictures become tensors.

    Raises:
        ValueError: If the bytes are not what the name says; also the errors of Pillow and json.
    """
    kind = suffix.rpartition(".")[2]
    if kind in PICTURES:
        return pictures.decode(data)
    if kind in ARRAYS:
        return _tensor(np.load(io.BytesIO(data), allow_pickle=False))
    if kind in NUMBERS:
        return torch.tensor(int(data.decode("ascii")))
    if kind in RECORDS:
        return _tensor(np.asarray(_entry(json.loads(data), field)))
    raise ValueError(f"members that end on .{suffix} are not read")


def _entry(value: Any, field: str) -> Any:
    for name in filter(None, field.split(".")):
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            raise ValueError(f"there is no {field!r} in the json")
    return value


def _tensor(array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "biuf":
        raise ValueError(f"an array of {array.dtype} is not numbers")
    if array.dtype.kind in "bu" and array.dtype != np.uint8:
        array = array.astype(np.int64)
    if array.dtype.kind == "f" and array.dtype.itemsize != 4:
        array = array.astype(np.float32)
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))
