"""What every way of evaluating points on a line promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from torch import Tensor

from landscape_cli.measures.contract import Observer
from landscape_cli.site import Site

COLUMNS = ("loss", "gradient_squared", "change_squared", "product", "distance_squared")
"""What is kept of a point: L, ‖∇L‖², ‖∇L − g‖², ⟨∇L, g⟩ and ‖θ(a) − θ₀‖², all float64."""


@dataclass(frozen=True)
class Line:
    """A direction to step along.

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


class Sweep(Protocol):
    """A line made ready by a strategy."""

    def evaluate(self, step_sizes: Sequence[float]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Evaluate points on the line.

        Args:
            step_sizes: a of every point, shape (K,).

        Returns:
            The columns, float64 of shape (K, 5) in the order of `COLUMNS`, NaN where the
            gradient was not wanted; and the rows of the observers as ``measure/field``, with the
            points on the first axis. The model is at θ₀ again.
        """
        ...


class Strategy(Protocol):
    """A way of evaluating points on a line."""

    name: ClassVar[str]

    def refusal(self, site: Site, line: Line) -> str:
        """Return in one line why the strategy cannot serve here; empty if it can."""
        ...

    def prepare(self, site: Site, line: Line) -> Sweep:
        """Make a line ready."""
        ...
