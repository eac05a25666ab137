"""The contents of a file as a run."""

from __future__ import annotations

import re
from typing import Any

from landscape_cli.errors import StoreError
from landscape_cli.runs import FORMAT, FORMAT_VERSION, Run, Variable
from landscape_cli.store.hdf5 import Dataset, Source, read_tree
from landscape_cli.store.hdf5.source import refuse

PLACEHOLDER = "This is a netCDF dimension but not a netCDF variable"
"""How the name of a scale begins that netCDF made up for an axis without labels."""


def decode(content: bytes) -> Run:
    """Return the run that a file holds.

    Args:
        content: every byte of the file, without its seal.

    Raises:
        StoreError: If it is no run of a version that can be read, is damaged, or holds what no
            run holds.
    """
    attributes, datasets = read_tree(Source(content))
    check_format(attributes)
    paths = {dataset.address: path for path, dataset in datasets.items()}
    variables = {
        path: Variable(
            _name_dimensions(path, dataset, paths, datasets),
            dataset.values,
            unit=str(dataset.attributes.get("units", "")),
            meaning=str(dataset.attributes.get("long_name", "")),
        )
        for path, dataset in datasets.items()
        if not str(dataset.attributes.get("NAME", "")).startswith(PLACEHOLDER)
    }
    return Run(variables, attributes)


def _name_dimensions(
    path: str, dataset: Dataset, paths: dict[int, str], datasets: dict[str, Dataset]
) -> tuple[str, ...]:
    """Return the names of a variable's axes, from the scales attached to them."""
    shape = dataset.values.shape
    if dataset.scales is None:
        if len(shape) > 1:
            refuse("a variable does not name its dimensions", path)
        return (path.rpartition("/")[2],) * len(shape)
    names: list[str] = []
    for size, address in zip(shape, dataset.scales, strict=False):
        scale = paths.get(address, "")
        if not scale or datasets[scale].values.shape != (size,):
            refuse("a dimension of a variable has no scale that fits it", path)
        names.append(scale.rpartition("/")[2])
    if len(names) != len(shape):
        refuse("a dimension of a variable has no scale that fits it", path)
    return tuple(names)


def check_format(attributes: dict[str, Any]) -> None:
    """Check that the attributes are those of a run of a version that can be read.

    Raises:
        StoreError: If they are not.
    """
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
            hint="pip install -U landscape-cli" if newer else "probe again",
        )
