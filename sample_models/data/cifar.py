"""CIFAR-10 and CIFAR-100 from the files of their binary version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from landscape_cli.errors import AdapterError
from sample_models.data.folders import find_folder
from sample_models.data.image_bytes import Augmented, Standardised, scaled
from sample_models.data.samples import Convert, Samples

if TYPE_CHECKING:
    from pathlib import Path

Split = Literal["train", "test"]

_PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class _Layout:
    """How a version's records and files look; labels are the first bytes of a record."""

    label_bytes: int
    folder: str
    files: dict[str, tuple[str, ...]]
    standardise: Standardised

    @property
    def record(self) -> int:
        """Bytes of one record."""
        return self.label_bytes + _PIXELS


_CIFAR10 = _Layout(
    1,
    "cifar-10-batches-bin",
    {
        "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
        "test": ("test_batch.bin",),
    },
    Standardised((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
)
_CIFAR100 = _Layout(
    2,
    "cifar-100-binary",
    {"train": ("train.bin",), "test": ("test.bin",)},
    Standardised((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
)


def open_cifar10(
    root: str, *, split: Split = "train", normalise: bool = True, augment: bool = False
) -> Samples:
    """Return CIFAR-10 from ``data_batch_1.bin`` … ``data_batch_5.bin`` or ``test_batch.bin``.

    Pixels stay bytes in memory (154 MB for the training set) and become floats as they are
    asked for.

    Args:
        root: folder with the files, or with ``cifar-10-batches-bin`` in it.
        split: ``train`` or ``test``.
        normalise: per channel, to the training set's mean 0 and deviation 1; else in [0, 1].
        augment: shift by up to four pixels and mirror, anew at every access; needs normalise.

    Returns:
        Images, float32 of shape (3, 32, 32), and labels 0 to 9.

    Raises:
        AdapterError: If a file is missing, not a whole number of records, or has an impossible
            label.
    """
    convert = _converter(_CIFAR10, normalise=normalise, augment=augment)
    rows = _read(root, _CIFAR10, split)
    return _samples(rows, _label(rows, 0, 10), convert)


def open_cifar100(
    root: str,
    *,
    split: Split = "train",
    labels: Literal["fine", "coarse"] = "fine",
    normalise: bool = True,
    augment: bool = False,
) -> Samples:
    """Return CIFAR-100 from ``train.bin`` or ``test.bin``; otherwise as `open_cifar10`.

    Args:
        root: folder with the files, or with ``cifar-100-binary`` in it.
        split: ``train`` or ``test``.
        labels: ``fine`` (0 to 99) or ``coarse`` (0 to 19).
        normalise: per channel, to the training set's mean 0 and deviation 1; else in [0, 1].
        augment: shift by up to four pixels and mirror, anew at every access; needs normalise.
    """
    convert = _converter(_CIFAR100, normalise=normalise, augment=augment)
    rows = _read(root, _CIFAR100, split)
    coarse, fine = _label(rows, 0, 20), _label(rows, 1, 100)
    return _samples(rows, fine if labels == "fine" else coarse, convert)


def _read(root: str, layout: _Layout, split: str) -> Tensor:
    """Return the records, uint8 of shape (N, record)."""
    names = layout.files[split]
    folder = find_folder(root, (layout.folder,), [(name,) for name in names])
    counts = [_records(folder / name, layout.record) for name in names]
    rows = np.empty((sum(counts), layout.record), dtype=np.uint8)
    start = 0
    for name, count in zip(names, counts, strict=True):
        _fill(rows[start : start + count], folder / name)
        start += count
    return torch.from_numpy(rows)


def _records(path: Path, record: int) -> int:
    size = path.stat().st_size
    if size == 0 or size % record:
        raise AdapterError(
            f"{path.name} is not a whole number of records of {record} bytes",
            seen=f"{size} bytes in {path}",
            hint="unpack the archive of the binary version again",
        )
    return size // record


def _fill(rows: np.ndarray, path: Path) -> None:
    try:
        with path.open("rb") as file:
            read = file.readinto(rows)  # type: ignore[arg-type]  # an array is a buffer
    except OSError as error:
        raise AdapterError(
            f"{path.name} cannot be read", seen=f"{path}: {error.strerror}", hint="check it"
        ) from None
    if read != rows.nbytes:
        raise AdapterError(
            f"{path.name} became shorter while it was read",
            seen=f"{read} of {rows.nbytes} bytes",
            hint="wait until the file is complete",
        )


def _label(rows: Tensor, column: int, classes: int) -> Tensor:
    labels = rows[:, column].to(torch.long)
    worst = int(labels.max())
    if worst >= classes:
        place = int(labels.argmax())
        raise AdapterError(
            f"a record has a label that none of the {classes} classes has",
            seen=f"label {worst} in record {place}",
            hint="the files are damaged, or another version's",
        )
    return labels


def _samples(rows: Tensor, labels: Tensor, convert: Convert) -> Samples:
    images = rows[:, -_PIXELS:].unflatten(1, (3, 32, 32))  # type: ignore[no-untyped-call]
    return Samples(images, labels, convert)


def _converter(layout: _Layout, *, normalise: bool, augment: bool) -> Convert:
    if not normalise and augment:
        raise AdapterError(
            "augmentation needs standardised images",
            seen="normalise=False, augment=True",
            hint="normalise=True",
        )
    if augment:
        return Augmented(layout.standardise)
    return layout.standardise if normalise else scaled
