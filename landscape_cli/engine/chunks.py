"""Points in chunks: evaluated together, summed up in float64, read by the host once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from landscape_cli.engine.strategy import COLUMNS, Slice, coordinates

ROW_BLOCK = 1 << 17
"""Elements widened to float64 together on a CPU, so that they stay in the cache."""

Evaluation = Callable[[np.ndarray], Tensor]
"""Takes points of shape (K, J) and returns their columns, float64 of shape (K, 5)."""


class ChunkedSweep:
    """Feeds an evaluation with chunks of points; out of memory, the chunks get smaller.

    Attributes:
        chunk: points evaluated together, at present.
        halvings: how often the memory did not suffice.
    """

    def __init__(self, slice_: Slice, evaluation: Evaluation, chunk: int) -> None:
        self._slice = slice_
        self._evaluation = evaluation
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
        rows: list[Tensor] = []
        start = 0
        while start < len(points):
            part = points[start : start + self.chunk]
            try:
                rows.append(self._evaluation(part))
            except torch.OutOfMemoryError:
                if self.chunk == 1:
                    raise
                self._halve()
                continue
            start += len(part)
        columns = torch.cat(rows).cpu().numpy() if rows else np.empty((0, len(COLUMNS)))
        return columns, {}

    def _halve(self) -> None:
        self.chunk //= 2
        self.halvings += 1
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def row_sums(rows: Tensor, reference: Tensor) -> Tensor:
    """Return (‖x‖², ‖x − r‖², ⟨x, r⟩) of every row x, summed in float64; shape (K, 3).

    Args:
        rows: K vectors, shape (K, P).
        reference: r, float64 of shape (P,).
    """
    count, length = rows.shape
    block = length if rows.is_cuda else max(1, ROW_BLOCK // max(count, 1))
    total = torch.zeros(count, 3, dtype=torch.float64, device=rows.device)
    for start in range(0, length, block):
        total += _block_sums(rows[:, start : start + block], reference[start : start + block])
    return total


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
    """Return ‖x − o‖² of every row x, subtracted and summed in float64; shape (K,).

    Args:
        rows: K vectors, shape (K, P).
        origin: o, shape (P,), in the type of the rows.
    """
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
