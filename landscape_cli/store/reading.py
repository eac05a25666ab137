"""The contents of an HDF5 file as a run: only what a run can hold is ever touched."""

from __future__ import annotations

import os
import re
from typing import Any, NoReturn

import h5py
import numpy as np

from landscape_cli.errors import StoreError
from landscape_cli.runs import FORMAT, FORMAT_VERSION, Run, Variable

_FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
_LAYOUTS = {h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED}
_GROUP_DEPTH = 4
# Deflate cannot compress by more than 1032.
_EXPANSION = 1100
_SLACK_BYTES = 16 << 20
_TEXT_BATCH_BYTES = 256 << 20
_PROBE_AGAIN = "restore the file from a copy, or probe again"


class Reader:
    """Reads one open file and believes none of it.

    HDF5 can name other files (external and soft links, virtual and external storage), carry types
    that stand for anything, declare any size, and unpack itself through plugins. All of these are
    looked for before the data they concern is touched, and refused.
    """

    def __init__(self, file: Any, file_bytes: int) -> None:
        self.file = file
        self.file_bytes = file_bytes
        self.stored = self.declared = self.text = 0
        self.groups: set[Any] = set()
        self.datasets: dict[str, Any] = {}

    def read(self) -> Run:
        """Return the run.

        Raises:
            StoreError: If the file is not a run of a version that can be read, or holds what no
                run holds.
        """
        attributes = _read_attributes(self.file)
        _check_format(attributes)
        self._collect(self.file, "", 0)
        paths = {dataset.id: path for path, dataset in self.datasets.items()}
        variables = {
            path: self._read_variable(path, dataset, paths)
            for path, dataset in self.datasets.items()
        }
        return Run(variables, attributes)

    def _collect(self, group: Any, prefix: str, depth: int) -> None:
        """List the datasets of a group and the groups below it, checking each."""
        if depth > _GROUP_DEPTH or group.id in self.groups:
            _refuse("the groups of the file are nested like no run's", prefix)
        self.groups.add(group.id)
        for name in group:
            path = f"{prefix}{name}"
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                _refuse("the file links to elsewhere", path)
            item = group[name]
            if isinstance(item, h5py.Group):
                self._collect(item, f"{path}/", depth + 1)
            elif isinstance(item, h5py.Dataset):
                self._check_storage(path, item)
                self.datasets[path] = item

    def _check_storage(self, path: str, dataset: Any) -> None:
        """Check that the data lies in this file and is as large as it can be there."""
        creation = dataset.id.get_create_plist()
        if creation.get_layout() not in _LAYOUTS or creation.get_external_count():
            _refuse("the file takes data from other files", path)
        for index in range(creation.get_nfilters()):
            if creation.get_filter(index)[0] not in _FILTERS:
                _refuse("the file is compressed in a way that no run is", path)
        _check_type(path, dataset.dtype)
        if dataset.shape is None:
            _refuse("a variable has no shape", path)
        declared = int(np.prod(dataset.shape, dtype=object)) * dataset.dtype.itemsize
        chunk = int(np.prod(dataset.chunks or (), dtype=object)) * dataset.dtype.itemsize
        self.stored += dataset.id.get_storage_size()
        self.declared += max(declared, chunk)
        limit = min(_EXPANSION * self.stored + _SLACK_BYTES, _memory_bytes() // 2)
        if self.stored > self.file_bytes or self.declared > limit:
            seen = f"{path} {dataset.shape}, {self.declared} bytes in a file of {self.file_bytes}"
            _refuse("the file declares more data than it can hold", seen)

    def _read_variable(self, path: str, dataset: Any, paths: dict[Any, str]) -> Variable:
        text = h5py.check_string_dtype(dataset.dtype) is not None
        values = self._read_labels(path, dataset) if text else _read_numbers(dataset)
        attributes = _read_attributes(dataset)
        return Variable(
            _read_dimensions(path, dataset, paths, self.datasets),
            values,
            unit=str(attributes.get("units", "")),
            meaning=str(attributes.get("long_name", "")),
        )

    def _read_labels(self, path: str, dataset: Any) -> np.ndarray:
        """Read text in batches, since any number of labels may share one long text."""
        labels = np.empty(dataset.shape, dtype=object)
        if dataset.ndim > 1:
            _refuse("labels have more than one dimension", path)
        if dataset.ndim == 0:
            labels[()] = self._decode(path, dataset[()])
            return labels
        batch = max(1, _TEXT_BATCH_BYTES // max(self.file_bytes, 1))
        for start in range(0, len(labels), batch):
            stop = min(start + batch, len(labels))
            labels[start:stop] = [self._decode(path, text) for text in dataset[start:stop]]
        return labels

    def _decode(self, path: str, text: bytes) -> str:
        self.text += len(text)
        if self.text > self.file_bytes:
            _refuse("the file declares more text than it can hold", path)
        return bytes(text).decode()


def _read_numbers(dataset: Any) -> np.ndarray:
    values = np.asarray(dataset[()])
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _check_type(path: str, dtype: np.dtype) -> None:
    numeric = dtype.kind in "iuf" and dtype.itemsize <= 8 and not dtype.metadata
    if not numeric and h5py.check_string_dtype(dtype) is None:
        _refuse("a variable is neither numbers nor text", f"{path}: {dtype}")


def _read_dimensions(
    path: str, dataset: Any, paths: dict[Any, str], datasets: dict[str, Any]
) -> tuple[str, ...]:
    """Return the names of a variable's axes, from the scales attached to them."""
    if "DIMENSION_LIST" not in dataset.attrs:
        if dataset.ndim > 1:
            _refuse("a variable does not name its dimensions", path)
        return (path.rpartition("/")[2],) * int(dataset.ndim)
    # Not through HDF5's own functions for scales, which believe the type of this attribute.
    attribute = dataset.attrs.get_id("DIMENSION_LIST")
    references = h5py.check_vlen_dtype(attribute.dtype) == h5py.ref_dtype
    if not references or attribute.shape != (dataset.ndim,):
        _refuse("the dimensions of a variable are not references to scales", path)
    names: list[str] = []
    for size, attached in zip(dataset.shape, dataset.attrs["DIMENSION_LIST"], strict=True):
        scale = paths.get(dataset.file[attached[0]].id) if len(attached) else None
        if scale is None or datasets[scale].shape != (size,):
            _refuse("a dimension of a variable has no scale that fits it", path)
        names.append(scale.rpartition("/")[2])
    return tuple(names)


def _read_attributes(item: Any) -> dict[str, Any]:
    """Return the attributes that are one text or number; nothing else is ever written."""
    attributes: dict[str, Any] = {}
    for name in item.attrs:
        attribute = item.attrs.get_id(name)
        text = h5py.check_string_dtype(attribute.dtype) is not None
        if attribute.shape == () and (text or attribute.dtype.kind in "iuf"):
            value = item.attrs[name]
            value = value.decode() if isinstance(value, bytes) else value
            attributes[name] = value.item() if isinstance(value, np.generic) else value
    return attributes


def _check_format(attributes: dict[str, Any]) -> None:
    if attributes.get("format") != FORMAT:
        raise StoreError(
            "the file is HDF5, but not a run of landscape",
            seen=f"format {attributes.get('format', '(none)')!r:.60}",
            hint="a file that landscape probe wrote",
        )
    version = str(attributes.get("format_version", "(none)"))
    match = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", version)
    ours = FORMAT_VERSION.partition(".")[0]
    if match is None or match[1] != ours:
        newer = match is not None and int(match[1]) > int(ours)
        raise StoreError(
            "the run has a format that this version cannot read",
            seen=f"format_version {version!r:.60}, this version reads {ours}.x",
            hint="upgrade: pip install -U landscape-cli" if newer else _PROBE_AGAIN,
        )


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _refuse(what: str, seen: str) -> NoReturn:
    raise StoreError(what, seen=seen or "(root)", hint=_PROBE_AGAIN)
