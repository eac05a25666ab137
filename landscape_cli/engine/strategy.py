"""What every way of evaluating points on a slice of the landscape promises."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from torch import Tensor

from landscape_cli.measures.contract import Observer
from landscape_cli.parameters import Tensors
from landscape_cli.site import Site

COLUMNS = ("loss", "gradient_squared", "change_squared", "product", "distance_squared")
"""What is kept of a point: L, ‖∇L‖², ‖∇L − g‖², ⟨∇L, g⟩ and ‖θ(a) − θ₀‖², all float64."""

FIRST_CHUNK = 8
"""Points together from which a larger chunk is looked for."""


@dataclass(frozen=True)
class Line:
    """A direction to step along: θ(a) = θ₀ − a·d.

    Attributes:
        label: its name along the direction axis.
        direction: d, tensors shaped as the parameters.
        gradients: whether the gradient is wanted at the points, or the loss alone.
        observers: sweep measures that watch the points, by name.
    """

    label: str
    direction: Sequence[Tensor]
    gradients: bool = True
    observers: dict[str, Observer] = field(default_factory=dict)

    @property
    def directions(self) -> tuple[Tensors, ...]:
        """The one direction."""
        return (self.direction,)


@dataclass(frozen=True)
class Plane:
    """Two directions to step along, θ(a, b) = θ₀ − a·d₁ − b·d₂, for the loss alone.

    Attributes:
        label: its name.
        directions: d₁ and d₂.
    """

    label: str
    directions: tuple[Tensors, ...]
    gradients: bool = False
    observers: dict[str, Observer] = field(default_factory=dict)


Slice = Line | Plane


class Sweep(Protocol):
    """A slice made ready by a strategy."""

    def evaluate(
        self, step_sizes: Sequence[float] | np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Evaluate points of the slice.

        Args:
            step_sizes: a of every point, shape (K,), or one column per direction, (K, J).

        Returns:
            The columns, float64 of shape (K, 5) in the order of `COLUMNS`, NaN in all but the
            loss where gradients were not wanted; and the rows of the observers as
            ``measure/field``, with the points on the first axis. The model is at θ₀ again.
        """
        ...


class Strategy(Protocol):
    """A way of evaluating points of a slice.

    Attributes:
        name: what ``--strategy`` calls it.
        summary: what it does, in the words of a notice.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    def refusal(self, site: Site, slice_: Slice) -> str:
        """Return in one line why the strategy cannot serve here; empty if it can."""
        ...

    def promises(self, site: Site, seconds: float, points: int) -> bool:
        """Whether a trial may pay in a run of `points`, of `seconds` each on the plain path."""
        ...

    def chunks(self, site: Site, most: int) -> Iterable[int]:
        """Yield how many points together are worth a trial, the fewest first, up to `most`."""
        ...

    def prepare(self, site: Site, slice_: Slice, *, chunk: int = 1) -> Sweep:
        """Make a slice ready; `chunk` points are evaluated together."""
        ...


def doubled(first: int, most: int) -> Iterator[int]:
    """Yield `first`, twice as many and so on, and `most` at the end.

    Example:
        >>> list(doubled(8, 40))
        [8, 16, 32, 40]
    """
    while first < most:
        yield first
        first *= 2
    yield most


def coordinates(step_sizes: Sequence[float] | np.ndarray, slice_: Slice) -> np.ndarray:
    """Return the points as float64 of shape (K, J), one column per direction of the slice."""
    return np.asarray(step_sizes, dtype=np.float64).reshape(-1, len(slice_.directions))
