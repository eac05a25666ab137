"""Points in chunks: evaluated together, summed up in float64, read by the host once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from landscape_cli.engine.lanes import spread
from landscape_cli.engine.strategy import COLUMNS, Slice, coordinates
from landscape_cli.sums import STRETCH, in_range

ROW_BLOCK = 1 << 17
"""Elements widened to float64 together on a CPU, so that they stay in the cache."""
Evaluation = Callable[[np.ndarray], Tensor]
"""Takes points of shape (K, J) and returns their columns, float64 of shape (K, 5)."""


class ChunkedSweep:
    """Feeds an evaluation with chunks of points; out of memory, the chunks get smaller.

    Args:
        slice_: what is evaluated.
        evaluation: returns the columns of a chunk; with several lanes, in several threads.
        chunk: points evaluated together.
        lanes: chunks evaluated side by side, with one thread each.

    Attributes:
        chunk: points evaluated together, at present.
        halvings: how often the memory did not suffice.
    """

    def __init__(
        self, slice_: Slice, evaluation: Evaluation, chunk: int, *, lanes: int = 1
    ) -> None:
        self._slice = slice_
        self._evaluation = evaluation
        self._lanes = lanes
        self.chunk = max(1, chunk)
        self.halvings = 0

    def evaluate(
        self, step_sizes: Sequence[float] | np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Evaluate the points, a chunk at a time.

        Raises:
            torch.OutOfMemoryError: If not even one point fits.
        """
        points = coordinates(step_sizes, self._slice)
        if not len(points):
            return np.empty((0, len(COLUMNS))), {}
        while True:
            try:
                return torch.cat(self._rows(points)).cpu().numpy(), {}
            except torch.OutOfMemoryError:
                if self.chunk == 1:
                    raise
                self._halve()

    def _rows(self, points: np.ndarray) -> list[Tensor]:
        parts = [points[i : i + self.chunk] for i in range(0, len(points), self.chunk)]
        if self._lanes == 1:
            return [self._evaluation(part) for part in parts]
        return spread(lambda _, part: self._evaluation(part), parts, self._lanes)

    def _halve(self) -> None:
        self.chunk //= 2
        self.halvings += 1
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def row_sums(rows: Tensor, reference: Tensor) -> Tensor:
    """Return (‖x‖², ‖x − r‖², ⟨x, r⟩) of every row x; float64 of shape (K, 3).

    Short stretches are summed in the type of the rows where that is safe, and put together in
    float64.

    Args:
        rows: K vectors, shape (K, P).
        reference: r, float64 of shape (P,).
    """
    if rows.dtype == torch.float32 and not rows.is_cuda:
        sums = _stretched_sums(rows, reference.float())
        if in_range(sums[:, :2]):
            return sums
    count, length = rows.shape
    block = length if rows.is_cuda else max(1, ROW_BLOCK // max(count, 1))
    total = torch.zeros(count, 3, dtype=torch.float64, device=rows.device)
    for start in range(0, length, block):
        total += _block_sums(rows[:, start : start + block], reference[start : start + block])
    return total


def _stretched_sums(rows: Tensor, reference: Tensor) -> Tensor:
    total = torch.zeros(len(rows), 3, dtype=torch.float64)
    for stretch in _stretches(rows):
        part = rows[:, stretch]
        norm = torch.linalg.vector_norm(part, dim=1)
        change = torch.linalg.vector_norm(part - reference[stretch], dim=1)
        product = (part @ reference[stretch]).double()
        total += torch.stack([norm.double().square(), change.double().square(), product], 1)
    return total


def _stretches(rows: Tensor) -> Iterator[slice]:
    """Yield the columns a stretch at a time, so that all rows of one fit the cache."""
    width = min(STRETCH, max(STRETCH // 16, ROW_BLOCK // max(len(rows), 1)))
    for start in range(0, rows.shape[1], width):
        yield slice(start, start + width)


def _block_sums(rows: Tensor, reference: Tensor) -> Tensor:
    wide = rows.double()
    norm = torch.linalg.vector_norm(wide, dim=1)
    product = wide @ reference
    # A float64 operand is not copied by double(): it must not be subtracted from in place.
    change = torch.sub(wide, reference, out=wide if wide is not rows else None)
    return torch.stack(
        [norm.square(), torch.linalg.vector_norm(change, dim=1).square(), product], 1
    )


def row_distances(rows: Tensor, origin: Tensor) -> Tensor:
    """Return ‖x − o‖² of every row x, float64 of shape (K,), put together as in `row_sums`.

    Args:
        rows: K vectors, shape (K, P).
        origin: o, shape (P,), in the type of the rows.
    """
    if rows.dtype == torch.float32 and not rows.is_cuda:
        squared = torch.zeros(len(rows), dtype=torch.float64)
        for stretch in _stretches(rows):
            moved = rows[:, stretch] - origin[stretch]
            squared += torch.linalg.vector_norm(moved, dim=1).double().square()
        if in_range(squared):
            return squared
    count, length = rows.shape
    block = length if rows.is_cuda else max(1, ROW_BLOCK // max(count, 1))
    total = torch.zeros(count, dtype=torch.float64, device=rows.device)
    for start in range(0, length, block):
        moved = rows[:, start : start + block].double() - origin[start : start + block]
        total += torch.linalg.vector_norm(moved, dim=1).square()
    return total


def columns_of(losses: Tensor, sums: Tensor, distances: Tensor) -> Tensor:
    """Return the columns of K points."""
    return torch.cat([losses[:, None], sums, distances[:, None]], dim=1)


def loss_columns(losses: Tensor) -> Tensor:
    """Return the columns of K points of which the loss alone is wanted."""
    others = losses.new_full((len(losses), len(COLUMNS) - 1), torch.nan)
    return torch.cat([losses[:, None], others], dim=1)
