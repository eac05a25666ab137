"""The data adapters ``npz`` and ``safetensors``: two arrays in a file, inputs and targets."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from landscape_cli.errors import AdapterError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.data import Dataset

NUMERIC = "biuf"
"""Kinds of numpy types that a tensor can hold here: booleans, integers, floating numbers."""

DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError),
    *(NotImplementedError, RuntimeError),  # compressed or encrypted in a way that is not known
)
"""What reading a damaged or foreign archive raises."""

LARGEST_INFLATION = 1100
"""How many bytes deflate can make of one, and a little more: sizes beyond it are made up."""


def open_npz(target: str, *, x: str = "x", y: str = "y") -> Dataset[Any]:
    """Open the arrays of an ``.npz`` file as a data set of (input, target).

    Arrays that ``numpy.savez`` stored without compression are mapped, so that only the samples
    that are used are read. Pickled objects are refused.

    Args:
        target: path of the file.
        x: name of the array of inputs, shape (samples, …).
        y: name of the array of targets, shape (samples, …).

    Raises:
        AdapterError: If the file or an array is missing or damaged, or the lengths differ.
    """
    path = _existing(target, "npz")
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = [_read_member(archive, path, name) for name in (x, y)]
    except DAMAGED as error:
        raise AdapterError(
            "the npz file cannot be read",
            seen=f"{path}: {error}",
            hint="write it with numpy.savez(file, x=inputs, y=targets)",
        ) from error
    return _pair(arrays[0], arrays[1], path)


def open_safetensors(target: str, *, x: str = "x", y: str = "y") -> Dataset[Any]:
    """Open two tensors of a ``.safetensors`` file as a data set of (input, target).

    The file is mapped, so that only the samples that are used are read.

    Args:
        target: path of the file.
        x: name of the tensor of inputs, shape (samples, …).
        y: name of the tensor of targets, shape (samples, …).

    Raises:
        AdapterError: If the file or a tensor is missing or damaged, or the lengths differ.
    """
    from safetensors import SafetensorError, safe_open

    path = _existing(target, "safetensors")
    try:
        with safe_open(path, framework="pt") as opened:
            names = list(opened.keys())
            for name in (x, y):
                _check_present(name, names, path)
            tensors = [opened.get_tensor(name) for name in (x, y)]
    except (SafetensorError, OSError) as error:
        raise AdapterError(
            "the safetensors file cannot be read",
            seen=f"{path}: {error}",
            hint='write it with safetensors.torch.save_file({"x": inputs, "y": targets}, file)',
        ) from error
    return _pair(tensors[0], tensors[1], path)


def _existing(target: str, kind: str) -> Path:
    path = Path(target).expanduser()
    if path.is_file():
        return path
    raise AdapterError(
        f"the {kind} file does not exist", seen=path, hint=f"--data {kind}:FILE.{kind}"
    )


def _check_present(name: str, names: list[str], path: Path) -> None:
    if name not in names:
        raise AdapterError(
            f"{path.name} has no array {name!r}",
            seen=", ".join(names[:8]) + (", …" if len(names) > 8 else "") or "(nothing)",
            hint="?x=NAME&y=NAME says which arrays are inputs and targets",
        )


def _pair(inputs: np.ndarray | Tensor, targets: np.ndarray | Tensor, path: Path) -> Dataset[Any]:
    for name, array in (("inputs", inputs), ("targets", targets)):
        if array.ndim == 0:
            raise AdapterError(
                f"the {name} are a single number",
                seen=path,
                hint="the first dimension counts samples",
            )
    if len(inputs) != len(targets):
        raise AdapterError(
            "there is not one target per input",
            seen=f"{len(inputs)} inputs, {len(targets)} targets in {path}",
            hint="the first dimension counts samples in both",
        )
    if len(inputs) == 0:
        raise AdapterError("the data is empty", seen=path, hint="give at least one sample")
    from landscape_cli.adapters.samples import ArraySamples

    return ArraySamples(inputs, targets)


def _read_member(archive: zipfile.ZipFile, path: Path, name: str) -> np.ndarray:
    names = [member.removesuffix(".npy") for member in archive.namelist()]
    _check_present(name, names, path)
    info = archive.getinfo(archive.namelist()[names.index(name)])
    with archive.open(info) as member:
        shape, by_column, dtype = _read_header(member)  # type: ignore[arg-type]
        start = member.tell()
    if dtype.kind not in NUMERIC:
        raise AdapterError(
            f"the array {name!r} does not hold numbers",
            seen=f"{dtype} in {path}",
            hint="save arrays of numbers; pickled objects are not read",
        )
    wanted = start + math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or wanted != info.file_size:
        raise ValueError(f"{name!r} says it has shape {shape}, and holds {info.file_size} bytes")
    if info.compress_type == zipfile.ZIP_STORED:
        return _map(path, info, start, dtype, shape, "F" if by_column else "C")
    if info.file_size > LARGEST_INFLATION * max(info.compress_size, 1):
        raise ValueError(f"{name!r} says it unpacks to {info.file_size} bytes")
    with archive.open(info) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def _read_header(member: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(member)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(member)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(member)
    raise ValueError(f"npy version {version[0]}.{version[1]} is not known")


def _map(
    path: Path,
    info: zipfile.ZipInfo,
    start: int,
    dtype: np.dtype,
    shape: tuple[int, ...],
    order: Any,
) -> np.ndarray:
    """Map an array that lies uncompressed in the archive; its bytes follow two local headers."""
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        lengths = np.frombuffer(file.read(4), dtype="<u2")
    offset = info.header_offset + 30 + int(lengths.sum()) + start
    if math.prod(shape) == 0:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order=order)
