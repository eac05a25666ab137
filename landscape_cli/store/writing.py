"""A run as an HDF5 file that h5py and xarray open with named dimensions.

HDF5 1.10 (2016) and later can read it; all of its metadata carry checksums.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from landscape_cli.disk import replace_file
from landscape_cli.errors import StoreError
from landscape_cli.runs import FORMAT, FORMAT_VERSION, Run, Variable
from landscape_cli.store.sealing import seal

_MANY = 65535
# One chunk holds a whole array: that needs no index. HDF5 has chunks of less than 4 GiB.
_COMPRESSED_BYTES = range(1 << 16, 1 << 31)
# xarray turns variables with these units into time spans, and warns about it.
_UNITS = {
    "days": "d",
    "hours": "h",
    "minutes": "min",
    "seconds": "s",
    "milliseconds": "ms",
    "microseconds": "us",
    "nanoseconds": "ns",
}


def write(run: Run, path: str | Path) -> None:
    """Write a run to disk, or replace the file that is there by it, in one instant.

    Every dimension has one scale of its own name, attached to every axis that has it: a variable
    of the run where there is one, else an index from 0. Labels become UTF-8 strings, booleans
    uint8, float16 float32; large arrays are compressed. The file ends in a hash of itself.

    Args:
        run: variables by path, attributes by name.
        path: of the file; its folder must exist.

    Raises:
        StoreError: If the variables do not fit together, or the disk does not take the file; the
            file that was there is untouched.
    """
    replace_file(Path(path), seal(encode(run)), what="the run")


def encode(run: Run) -> bytes:
    """Return the bytes of the HDF5 file that holds a run."""
    import h5py  # Here, since reading a run does not need it.

    # In memory, because HDF5 cannot recover from a disk that fills up under it; and closed, because
    # HDF5 1.14.2 gives the image of an open file a wrong checksum.
    image = io.BytesIO()
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fileobj_driver(h5py.h5fd.fileobj_driver, image)
    access.set_libver_bounds(h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_V110)
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_link_creation_order(h5py.h5p.CRT_ORDER_TRACKED | h5py.h5p.CRT_ORDER_INDEXED)
    # Never the indices for many attributes, which no reader of runs accepts.
    creation.set_attr_phase_change(_MANY, 0)
    identifier = h5py.h5f.create(b"run.h5", h5py.h5f.ACC_TRUNC, fcpl=creation, fapl=access)
    with h5py.File(identifier) as file:
        _Writer(file, run).write()
    return image.getvalue()


class _Writer:
    """An HDF5 file while a run is written to it."""

    def __init__(self, file: Any, run: Run) -> None:
        self.file = file
        self.run = run

    def write(self) -> None:
        """Write the variables in the order of the run, attach the scales, write the attributes."""
        scales = self._find_scales()
        variables = {**self.run.variables, **scales}
        for path, variable in variables.items():
            self._write_variable(path, variable)
        for path in scales:
            self.file[path].make_scale(path.rpartition("/")[2])
        for path, variable in variables.items():
            if path not in scales:
                for axis, dim in enumerate(variable.dims):
                    scale = self.file[_scale_of(path, dim, scales)]
                    self.file[path].dims[axis].attach_scale(scale)
        self._write_attributes()

    def _find_scales(self) -> dict[str, Variable]:
        """Return the scale of every dimension by its path, made up where the run has none."""
        variables = self.run.variables
        scales = {
            path: variable
            for path, variable in variables.items()
            if variable.dims == (path.rpartition("/")[2],)
        }
        # The root first, so that groups share its dimensions.
        for path in sorted(variables, key=lambda path: path.count("/")):
            variable = variables[path]
            for dim, size in zip(variable.dims, variable.values.shape, strict=True):
                found = _scale_of(path, dim, scales)
                if not found:
                    found = _join(path.rpartition("/")[0], dim)
                    scales[found] = Variable((dim,), np.arange(size), meaning=f"index of {dim}")
                _check_fit(path, dim, size, found, scales, variables)
        return scales

    def _write_variable(self, path: str, variable: Variable) -> None:
        import h5py

        values = _storable(path, variable.values)
        group = self.file
        for name in path.split("/")[:-1]:
            group = group[name] if name in group else group.create_group(name, track_order=True)
        dataset = group.create_dataset(
            path.rpartition("/")[2],
            data=values,
            dtype=h5py.string_dtype() if values.dtype == object else values.dtype,
            **_layout(values),
        )
        unit = _UNITS.get(variable.unit, variable.unit)
        for name, text in (("units", unit), ("long_name", variable.meaning)):
            if text:
                dataset.attrs[name] = _storable_text(text)

    def _write_attributes(self) -> None:
        attributes = {"format": FORMAT, "format_version": FORMAT_VERSION, **self.run.attributes}
        for name, value in attributes.items():
            if value is not None:
                self.file.attrs[name] = _storable_attribute(value)


def _join(group: str, name: str) -> str:
    return f"{group}/{name}" if group else name


def _scale_of(path: str, dim: str, scales: Iterable[str]) -> str:
    """Return the path of the scale that a variable's axis has: the nearest one upwards, or none."""
    group = path.rpartition("/")[0]
    while group:
        if _join(group, dim) in scales:
            return _join(group, dim)
        group = group.rpartition("/")[0]
    return dim if dim in scales else ""


def _check_fit(
    path: str,
    dim: str,
    size: int,
    scale: str,
    scales: dict[str, Variable],
    variables: dict[str, Variable],
) -> None:
    if scale in variables and variables[scale].dims != (dim,):
        raise StoreError(
            f"the variable {scale!r} has the name of an axis, but does not label it",
            seen=f"dimensions {variables[scale].dims}",
            hint=f"name the variable otherwise, or give it the one dimension {dim!r}",
        )
    length = scales[scale].values.shape[0]
    if length != size:
        raise StoreError(
            f"the axis {dim!r} of {path!r} does not fit its labels",
            seen=f"{size} values, {length} labels in {scale!r}",
            hint="give the axis a name of its own, or as many values as it has labels",
        )


def _layout(values: np.ndarray) -> dict[str, Any]:
    """Return how an array is stored: compressed where it pays."""
    if values.dtype == object or values.nbytes not in _COMPRESSED_BYTES:
        return {}
    return {"chunks": values.shape, "compression": 1, "shuffle": True}


def _storable(path: str, values: np.ndarray) -> np.ndarray:
    """Return the values in a type that every reader has."""
    kind = values.dtype.kind
    if kind in "OU":
        texts = [_storable_label(path, value) for value in values.ravel()]
        labels = np.empty(len(texts), dtype=object)
        labels[:] = texts
        return labels.reshape(values.shape)
    if kind == "b":
        return values.astype(np.uint8)
    if kind == "f" and values.dtype.itemsize < 4:
        return values.astype(np.float32)
    if kind in "iuf" and values.dtype.itemsize <= 8:
        return values
    raise StoreError(
        f"the variable {path!r} has a type that the file cannot hold",
        seen=values.dtype,
        hint="floating-point numbers, integers, booleans or text",
    )


def _storable_label(path: str, value: Any) -> str:
    if isinstance(value, str):
        return _storable_text(value)
    raise StoreError(
        f"a label of {path!r} is not text",
        seen=f"{type(value).__name__}: {value!r:.60}",
        hint="labels are str; numbers need a numeric dtype",
    )


def _storable_text(text: str) -> str:
    """Return the text with what UTF-8 strings in HDF5 cannot hold spelled out."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _storable_attribute(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return _storable_text(value)
    if isinstance(value, int):
        return np.int64(value) if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, float):
        return np.float64(value)
    return _storable_text(json.dumps(value, sort_keys=True))
