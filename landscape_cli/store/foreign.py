"""Runs that other programs laid out anew, read with the HDF5 library and laid out as ours.

The library hangs, crashes and worse on crafted files. This is what runs in the process that
`conversion` starts and bounds; nothing else imports it.
"""

from __future__ import annotations

import codecs
import json
import math
import sys
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from landscape_cli.errors import StoreError
from landscape_cli.runs import Run, Variable
from landscape_cli.store.confinement import confine
from landscape_cli.store.hdf5.source import refuse
from landscape_cli.store.reading import PLACEHOLDER, check_format
from landscape_cli.store.writing import encode

_NOWHERE = b"/dev/null/run.h5"
"""The library refuses a name that a file has, though it reads from memory."""
_MAX_DEPTH = 4
_MAX_EXPANSION = 1100
"""Bytes that one byte stands for at most, a little over what deflate can do."""
_INTERNAL = ("_NCProperties", "_nc3_strict")
"""Attributes that netCDF keeps for itself."""


def main() -> None:
    """Answer on standard output for the file on standard input, once."""
    content = sys.stdin.buffer.read()
    _rehearse()
    confine(len(content))
    sys.stdout.buffer.write(answer(content))
    sys.stdout.buffer.flush()


def _rehearse() -> None:
    """Read a run with a bit of everything, since nothing can be imported once confined."""
    codecs.lookup("ascii")
    numbers = Variable(("x", "y"), np.zeros((2, 10_000)), "loss", "L(θ)")
    texts = Variable(("x",), np.array(["a", "b"], dtype=object))
    answers = answer(encode(Run({"x": texts, "z": numbers}, {"n": 1}))), answer(b"")
    if [one[:1] for one in answers] != [b"R", b"E"]:
        raise RuntimeError(f"runs cannot be laid out anew: {answers!r:.300}")


def answer(content: bytes) -> bytes:
    """Return ``R`` and the bytes of the run in our layout, or ``E`` and the error as JSON."""
    try:
        return b"R" + encode(read(content))
    except StoreError as error:
        lines = (error.what, error.seen, error.hint)
    except MemoryError:
        lines = ("the file declares more data than it can hold", "no memory is left for it", "")
    except (OSError, RuntimeError, LookupError, ValueError, TypeError) as error:
        lines = ("the file is damaged: the HDF5 library cannot read it", repr(error), "")
    return b"E" + json.dumps(lines).encode()


def read(content: bytes) -> Run:
    """Return the run in a file of whatever layout.

    Raises:
        StoreError: If it is no run of a version that can be read, or holds what no run holds.
    """
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fapl_core(backing_store=False)
    access.set_file_image(content)
    with h5py.File(h5py.h5f.open(_NOWHERE, h5py.h5f.ACC_RDONLY, fapl=access)) as file:
        attributes = _read_attributes(file)
        check_format(attributes)
        arrays = dict(_Reader(len(content)).read_group(file, "", 0))
    kept = {name: value for name, value in attributes.items() if name not in _INTERNAL}
    return Run(arrays, kept)


class _Reader:
    """Reads every object once, and no more data than the file can hold."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.spent = 0
        self.seen: set[int] = set()

    def read_group(
        self, group: h5py.Group, prefix: str, depth: int
    ) -> Iterator[tuple[str, Variable]]:
        """Yield the arrays in a group and below it."""
        if depth > _MAX_DEPTH:
            refuse("the groups of the file are nested like no run's", prefix)
        for name in group:
            path = f"{prefix}{name}"
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                refuse("the file links to elsewhere", path)
            item = group[name]
            self._count(item, path)
            if isinstance(item, h5py.Group):
                yield from self.read_group(item, f"{path}/", depth + 1)
            elif not isinstance(item, h5py.Dataset):
                refuse("a variable is neither numbers nor text", path)
            elif not _is_placeholder(item):
                yield path, self._read_variable(path, item)

    def _count(self, item: Any, path: str) -> None:
        address = h5py.h5o.get_info(item.id).addr
        if address in self.seen:
            refuse("the groups of the file are nested like no run's", path)
        self.seen.add(address)

    def _read_variable(self, path: str, dataset: h5py.Dataset) -> Variable:
        if dataset.shape is None:
            refuse("a variable has no shape", path)
        self._check_storage(path, dataset)
        attributes = _read_attributes(dataset)
        return Variable(
            _name_dimensions(path, dataset),
            _read_values(path, dataset),
            unit=str(attributes.get("units", "")),
            meaning=str(attributes.get("long_name", "")),
        )

    def _check_storage(self, path: str, dataset: h5py.Dataset) -> None:
        """Refuse data that lie elsewhere, and more data than there are bytes for."""
        creation = dataset.id.get_create_plist()
        if creation.get_layout() == h5py.h5d.VIRTUAL or creation.get_external_count():
            refuse("the file takes data from other files", path)
        declared = math.prod(dataset.shape) * dataset.dtype.itemsize
        stored = dataset.id.get_storage_size()
        self.spent += stored
        if declared and not stored:
            refuse("the file declares data that was never written", path)
        most = stored * (_MAX_EXPANSION if creation.get_nfilters() else 1)
        if declared > most or self.spent > 2 * self.size:
            refuse("the file declares more data than it can hold", f"{path}: {declared} bytes")


def _is_placeholder(dataset: h5py.Dataset) -> bool:
    return str(_read_attributes(dataset).get("NAME", "")).startswith(PLACEHOLDER)


def _read_values(path: str, dataset: h5py.Dataset) -> np.ndarray:
    """Return the elements: numbers in this machine's byte order, or an object array of str."""
    kind = dataset.dtype.kind
    if h5py.check_string_dtype(dataset.dtype) is not None:
        texts = np.empty(dataset.shape, dtype=object)
        texts[...] = dataset.asstr("utf-8")[()]
        return texts
    if kind not in "iufb" or dataset.dtype.itemsize > 8:
        refuse("a variable is neither numbers nor text", path)
    values = np.asarray(dataset[()])
    return values.astype(values.dtype.newbyteorder("="))


def _name_dimensions(path: str, dataset: h5py.Dataset) -> tuple[str, ...]:
    """Return the names of a variable's axes, from the scales attached to them."""
    if len(dataset.shape) <= 1 and (dataset.is_scale or "DIMENSION_LIST" not in dataset.attrs):
        return (path.rpartition("/")[2],) * len(dataset.shape)
    return tuple(_name_dimension(path, axis) for axis in dataset.dims)


def _name_dimension(path: str, axis: Any) -> str:
    try:
        name = str(axis[0].name) if len(axis) else ""
    except RuntimeError:  # what copying arrays one by one leaves behind
        name = ""
    if not name:
        raise StoreError(
            "a variable does not name its dimensions: it has lost its scales",
            seen=path,
            hint="copy the whole file; copying arrays one by one leaves their scales behind",
        )
    return name.rpartition("/")[2]


def _read_attributes(item: h5py.Group | h5py.Dataset) -> dict[str, Any]:
    """Return the attributes that are one text or number; netCDF makes arrays of one of them."""
    attributes: dict[str, Any] = {}
    for name in item.attrs:
        identifier = item.attrs.get_id(name)
        if identifier.dtype.kind not in "SOiufb" or h5py.check_ref_dtype(identifier.dtype):
            continue
        value = item.attrs[name]
        if isinstance(value, h5py.Empty):
            value = ""
        elif isinstance(value, np.ndarray) and value.size == 1:
            value = value.reshape(())[()]
        if isinstance(value, bytes):
            value = value.decode()
        if isinstance(value, str | np.generic):
            attributes[name] = value.item() if isinstance(value, np.generic) else value
    return attributes
