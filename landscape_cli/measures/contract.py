"""The whole contract of a measure, on one screen.

A measure is registered under the entry-point group ``landscape_cli.measures`` and is one of two
kinds. A *site* measure is taken once at every checkpoint. A *sweep* measure watches every point
of every line: what it records at a point is kept with the point, and summed up over the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from landscape_cli.objective import Tap
    from landscape_cli.site import Site

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Field:
    """One array that a measure writes, at ``/<measure>/<name>``.

    Attributes:
        dims: its axes; ``checkpoint`` and ``direction`` are stacked by the tool, the arrays that
            a measure returns leave them out. An axis that only the measure has is labelled by
            the field of the same name, e.g. the field ``layer`` with dims ("layer",).
        unit: unit of the numbers.
        meaning: one line.
        dtype: numpy type; ``str`` for labels.
    """

    dims: tuple[str, ...]
    unit: str = ""
    meaning: str = ""
    dtype: str = "float64"


@runtime_checkable
class SiteMeasure(Protocol):
    """Something measured once at a checkpoint."""

    name: ClassVar[str]
    fields: ClassVar[Mapping[str, Field]]

    def refusal(self, site: Site) -> str:
        """Return in one line why the measure does not apply here; empty if it does."""
        ...

    def measure(self, site: Site) -> Arrays:
        """Return every field, without the checkpoint axis. The model is at θ₀ before and after."""
        ...


class Observer(Protocol):
    """What a sweep measure does at the points of one line."""

    tap: Tap | None

    def observe(self, gradient: Sequence[Tensor]) -> Arrays:
        """Return what is to be kept of the point where the model is; `gradient` is ∇L there."""
        ...


@runtime_checkable
class SweepMeasure(Protocol):
    """Something watched at every point of every line."""

    name: ClassVar[str]
    fields: ClassVar[Mapping[str, Field]]

    def refusal(self, site: Site) -> str:
        """Return in one line why the measure does not apply here; empty if it does."""
        ...

    def observer(self, site: Site) -> Observer:
        """Return an observer for one line; it may evaluate the objective at θ₀."""
        ...

    def summarise(self, rows: Arrays) -> Arrays:
        """Return every field from the kept rows, stacked over the steps on a first axis."""
        ...
