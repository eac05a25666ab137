"""Chunks of points, and what happens when the memory does not suffice."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from landscape_cli.engine.chunks import ChunkedSweep, row_distances, row_sums
from landscape_cli.engine.strategy import Line

LINE = Line("gradient", [torch.zeros(1)])


class Evaluation:
    """Counts what it is given; has room for a few points only."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.counts: list[int] = []

    def __call__(self, points: np.ndarray) -> torch.Tensor:
        self.counts.append(len(points))
        if len(points) > self.room:
            raise torch.OutOfMemoryError("no room")
        return torch.from_numpy(points).expand(-1, 5).clone()


def test_out_of_memory_halves_the_chunk_and_goes_on() -> None:
    evaluation = Evaluation(room=3)
    sweep = ChunkedSweep(LINE, evaluation, chunk=8)
    columns, _ = sweep.evaluate(np.arange(10.0))
    assert columns[:, 0].tolist() == list(range(10))
    assert evaluation.counts == [8, 4, 2, 2, 2, 2, 2]
    assert (sweep.chunk, sweep.halvings) == (2, 2)


def test_a_point_that_does_not_fit_alone_is_an_error() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        ChunkedSweep(LINE, Evaluation(room=0), chunk=4).evaluate([1.0, 2.0])


def test_no_points_give_no_rows() -> None:
    assert ChunkedSweep(LINE, Evaluation(room=1), chunk=4).evaluate([])[0].shape == (0, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_row_sums_are_summed_in_float64_and_leave_the_rows_alone(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    # More elements than a block, so that several blocks are put together.
    rows = (1e3 + torch.randn(3, 200_001, generator=generator)).to(dtype)
    reference = torch.randn(200_001, generator=generator, dtype=torch.float64)
    before = rows.clone()
    wide = rows.double()
    expected = torch.stack(
        [(wide * wide).sum(1), ((wide - reference) ** 2).sum(1), (wide * reference).sum(1)], 1
    )
    torch.testing.assert_close(row_sums(rows, reference), expected, rtol=1e-12, atol=1e-6)
    assert torch.equal(rows, before)
    origin = torch.randn(200_001, generator=generator).to(dtype)
    moved = ((wide - origin.double()) ** 2).sum(1)
    torch.testing.assert_close(row_distances(rows, origin), moved, rtol=1e-12, atol=0)
