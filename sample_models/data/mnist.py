"""MNIST and Fashion-MNIST from their idx files, compressed or not."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from landscape_cli.errors import AdapterError
from sample_models.data.folders import find_folder, first_file, read_bytes
from sample_models.data.image_bytes import Standardised, scaled
from sample_models.data.samples import Samples

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Split = Literal["train", "test"]

_IMAGES, _LABELS = 0x00000803, 0x00000801
_STEMS = {"train": "train", "test": "t10k"}
_CLASSES = 10


def open_mnist(root: str, *, split: Split = "train", normalise: bool = True) -> Samples:
    """Return MNIST from ``train-images-idx3-ubyte`` and its three companions, ``.gz`` or not.

    Args:
        root: folder with the files, or with ``MNIST/raw`` in it.
        split: ``train`` or ``test``.
        normalise: to the training set's mean 0 and deviation 1; else in [0, 1].

    Returns:
        Images, float32 of shape (1, 28, 28), and labels 0 to 9; bytes in memory until asked for.

    Raises:
        AdapterError: If a file is missing, or is not what its header says.
    """
    convert = Standardised((0.1307,), (0.3081,)) if normalise else scaled
    return Samples(*_read(root, ("MNIST/raw", "mnist"), split), convert)


def open_fashion_mnist(root: str, *, split: Split = "train", normalise: bool = True) -> Samples:
    """Return Fashion-MNIST: as `open_mnist`, from ``root`` or ``FashionMNIST/raw`` in it."""
    convert = Standardised((0.2860,), (0.3530,)) if normalise else scaled
    return Samples(*_read(root, ("FashionMNIST/raw", "fashion"), split), convert)


def _read(root: str, subfolders: Sequence[str], split: str) -> tuple[Tensor, Tensor]:
    image_names, label_names = _names(split, "images", 3), _names(split, "labels", 1)
    folder = find_folder(root, subfolders, [image_names, label_names])
    images = _read_idx(_present(folder, image_names), _IMAGES)
    labels = _read_idx(_present(folder, label_names), _LABELS).to(torch.long)
    if len(images) != len(labels):
        raise AdapterError(
            "there are not as many labels as images",
            seen=f"{len(images)} images, {len(labels)} labels in {folder}",
            hint="take both files from one archive",
        )
    if int(labels.max()) >= _CLASSES:
        raise AdapterError(
            "a label is none of the 10 classes",
            seen=f"label {int(labels.max())} in {folder}",
            hint="the file is damaged, or another data set's",
        )
    return images.unsqueeze(1), labels


def _names(split: str, what: str, axes: int) -> tuple[str, ...]:
    stem = f"{_STEMS[split]}-{what}"
    plain = (f"{stem}-idx{axes}-ubyte", f"{stem}.idx{axes}-ubyte")
    return (*plain, *(f"{name}.gz" for name in plain))


def _present(folder: Path, names: Sequence[str]) -> Path:
    path = first_file(folder, names)
    if path is None:
        raise AdapterError("a file has vanished", seen=f"{folder / names[0]}", hint="try again")
    return path


def _read_idx(path: Path, magic: int) -> Tensor:
    """Return the bytes of an idx file in the shape that its header gives."""
    content = _decompressed(path) if path.suffix == ".gz" else read_bytes(path)
    axes = magic & 0xFF
    header = 4 * (1 + axes)
    if len(content) < header:
        raise _damaged(path, f"{len(content)} bytes, shorter than its header")
    found, *shape = struct.unpack(f">{1 + axes}I", content[:header])
    if found != magic:
        raise _damaged(path, f"it starts with {found:#010x} instead of {magic:#010x}")
    expected = header + int(np.prod(shape, dtype=object))
    if len(content) != expected or expected == header:
        raise _damaged(path, f"{len(content)} bytes where its header gives {expected}")
    values = np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)
    return torch.from_numpy(values.copy())


def _decompressed(path: Path) -> bytes:
    try:
        return gzip.decompress(read_bytes(path))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, str(error)) from None


def _damaged(path: Path, seen: str) -> AdapterError:
    return AdapterError(
        f"{path.name} is not such a file as the data set has",
        seen=seen,
        hint="get the file again",
    )
