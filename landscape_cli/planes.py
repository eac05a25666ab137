"""Which plane of the landscape is asked for, ``--plane A,B``, and its grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from landscape_cli.errors import SpecError
from landscape_cli.specs import DirectionSpec, StepGrid

COMPONENTS = ("component:0", "component:1")
"""The labels of the axes of ``--plane pca``."""


@dataclass(frozen=True)
class PlaneSpec:
    """Two directions and a square grid on them: θ(a, b) = θ₀ − a·d₁ − b·d₂.

    A direction is written as for a line, except that ``random:K`` is the K-th draw, from 0.
    ``pca`` stands for the two principal components of the trajectory.

    Attributes:
        axes: labels of d₁ and d₂.
        grid: multiples along either axis.

    Example:
        >>> PlaneSpec.parse("gradient,random:0", "-1:1:3").points
        9
    """

    axes: tuple[str, str]
    grid: StepGrid

    @classmethod
    def parse(cls, text: str, grid: str) -> PlaneSpec:
        """Read the two directions and ``LO:HI:COUNT[:log|lin]``, evenly spaced by default.

        Raises:
            SpecError: If they are not two different directions, or not a grid.
        """
        spacing = "" if grid.count(":") > 2 else ":lin"
        steps = StepGrid.parse(grid + spacing)
        if text == "pca":
            return cls((COMPONENTS[0], COMPONENTS[1]), steps)
        pair = _split(text)
        if pair is None or pair[0] == pair[1]:
            raise SpecError(
                "the plane is not two different directions",
                seen=text,
                hint="--plane gradient,random:0 or toward:A,toward:B or pca",
            )
        return cls(pair, steps)

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> PlaneSpec | None:
        """Return the plane of a run's settings, None without one."""
        text = settings.get("plane")
        return cls.parse(text, settings.get("plane_steps", "-1:1:21")) if text else None

    @property
    def principal(self) -> bool:
        """Whether the axes are principal components, so that one plane serves the run."""
        return self.axes == COMPONENTS

    @property
    def points(self) -> int:
        """Number of points of the grid."""
        return self.grid.count**2

    def multiples(self) -> np.ndarray:
        """Return the points row by row, the first axis fastest; shape (points, 2)."""
        along = self.grid.multiples()
        second, first = np.meshgrid(along, along, indexing="ij")
        return np.stack([first.ravel(), second.ravel()], axis=1)

    def scaled(self) -> tuple[bool, bool]:
        """Return whether a multiple is one of the learning rate, for either axis."""
        if self.principal:
            return False, False
        first, second = (DirectionSpec.of_label(axis).scaled for axis in self.axes)
        return first, second


def _split(text: str) -> tuple[str, str] | None:
    """Return the two directions; a comma may also be part of a path."""
    parts = text.split(",")
    for cut in range(1, len(parts)):
        pair = ",".join(parts[:cut]), ",".join(parts[cut:])
        if all(_is_direction(axis) for axis in pair):
            return pair
    return None


def _is_direction(text: str) -> bool:
    kind, _, argument = text.partition(":")
    if kind in ("random", "random-filter"):
        return argument.isdecimal()
    try:
        DirectionSpec.parse(text)
    except SpecError:
        return False
    return True
