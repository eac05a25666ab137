"""Random directions that are drawn again whenever they are used, instead of being kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from torch import Tensor

from landscape_cli import directions
from landscape_cli.parameters import Parameters, norm


class Regenerated(Sequence[Tensor]):
    """A random direction, one tensor of which is in memory at a time.

    Args:
        parameters: θ.
        draw: makes the tensor at a position, the same every time.
        length: ‖d‖₂ that it is scaled to.
    """

    def __init__(
        self, parameters: Parameters, draw: Callable[[int], Tensor], length: float
    ) -> None:
        self._count = len(parameters.tensors)
        self._draw = draw
        self._factor = 1.0
        present = norm(self)  # in the order that a kept direction is summed in: the same bits
        self._factor = length / present if present else 0.0

    @classmethod
    def random(cls, parameters: Parameters, seed: int, draw: int, length: float) -> Regenerated:
        """Return the direction `landscape_cli.directions.random`, scaled to `length`."""
        return cls(parameters, lambda i: directions.random_at(parameters, seed, draw, i), length)

    @classmethod
    def random_filter(
        cls, parameters: Parameters, seed: int, draw: int, length: float
    ) -> Regenerated:
        """Return the direction `landscape_cli.directions.random_filter`, scaled to `length`."""
        return cls(
            parameters, lambda i: directions.random_filter_at(parameters, seed, draw, i), length
        )

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tensor]: ...
    def __getitem__(self, index: int | slice) -> Tensor | list[Tensor]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self._draw(index).mul_(self._factor)
