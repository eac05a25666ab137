"""A run in memory: named arrays with named dimensions, and where they came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from landscape_cli.errors import StoreError

if TYPE_CHECKING:
    import xarray

FORMAT = "landscape"
FORMAT_VERSION = "1.0"

NOT_MEASURED, MEASURED, LOSS_NOT_FINITE, GRADIENT_NOT_FINITE = range(4)
"""Values of ``/status``."""


@dataclass(frozen=True)
class Variable:
    """One array of a run.

    Attributes:
        dims: name of every axis, e.g. ("checkpoint", "direction", "step").
        values: the numbers, or an object array of str for labels.
        unit: unit of the numbers, empty where there is none.
        meaning: one line, stored as the attribute ``long_name``.
    """

    dims: tuple[str, ...]
    values: np.ndarray
    unit: str = ""
    meaning: str = ""

    def __post_init__(self) -> None:
        if len(self.dims) != self.values.ndim:
            raise ValueError(f"{self.dims} name {len(self.dims)} axes of {self.values.shape}")


@dataclass
class Run:
    """The result of a probe: variables by path, attributes by name.

    A path is the HDF5 path without the leading slash: ``loss``, ``loss_range/minimum``.
    ``run[path]`` is the numpy array, ``run.variables[path]`` the variable with its dimensions.

    Attributes:
        variables: every array, coordinates included.
        attributes: root attributes (``status``, ``created``, ``command``, ``settings``, …).
        source: where the run was read from, for titles and labels.
    """

    variables: dict[str, Variable]
    attributes: dict[str, Any] = field(default_factory=dict)
    source: str = ""

    def __getitem__(self, path: str) -> np.ndarray:
        try:
            return self.variables[path.lstrip("/")].values
        except KeyError:
            raise StoreError(
                f"the run has no {path!r}",
                seen=", ".join(sorted(self.variables)),
                hint="probe again with the --measure that writes it",
            ) from None

    def __contains__(self, path: str) -> bool:
        return path.lstrip("/") in self.variables

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The resolved settings of the probe."""
        return dict(json.loads(self.attributes.get("settings", "{}")))

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for is there."""
        return bool(self.attributes.get("status") == "complete")

    @property
    def label(self) -> str:
        """A short name: the file's stem."""
        name = self.source.replace("\\", "/").rsplit("/", 1)[-1]
        return name.removesuffix(".h5") or "run"

    def labels(self, dimension: str) -> list[str]:
        """Return the labels along a dimension, as text."""
        return [str(label) for label in self[dimension]]

    def groups(self) -> list[str]:
        """Return the names of the measures in the run, in the order of the file."""
        return list(dict.fromkeys(path.split("/")[0] for path in self.variables if "/" in path))

    def select(self, path: str, **indices: int | slice | Sequence[int]) -> np.ndarray:
        """Return an array indexed by dimension name, e.g. ``select("loss", direction=0)``."""
        variable = self.variables[path]
        return variable.values[tuple(indices.get(dim, slice(None)) for dim in variable.dims)]

    def to_xarray(self) -> xarray.DataTree:
        """Return the run as an xarray ``DataTree`` (needs xarray)."""
        import xarray as xr

        nodes: dict[str, dict[str, Any]] = {}
        for path, variable in self.variables.items():
            group, _, name = path.rpartition("/")
            attributes = {"units": variable.unit, "long_name": variable.meaning}
            nodes.setdefault(f"/{group}", {})[name] = (variable.dims, variable.values, attributes)
        trees = {path: xr.Dataset(arrays) for path, arrays in nodes.items()}
        tree = xr.DataTree.from_dict(trees)
        tree.attrs.update(self.attributes)
        return tree
