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


@pytest.mark.parametrize("scale", [1.0, 1e25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_row_sums_are_exact_to_rounding_and_leave_the_rows_alone(
    dtype: torch.dtype, scale: float
) -> None:
    generator = torch.Generator().manual_seed(0)
    # More elements than a block, so that several blocks are put together.
    rows = (scale * (1e3 + torch.randn(3, 200_001, generator=generator))).to(dtype)
    reference = scale * torch.randn(200_001, generator=generator, dtype=torch.float64)
    before, wide = rows.clone(), rows.double()
    squares, products = (wide * wide).sum(1), (wide * reference).sum(1)
    changes = ((wide - reference) ** 2).sum(1)
    found = row_sums(rows, reference)
    precision = 1e-12 if dtype == torch.float64 else 1e-7
    torch.testing.assert_close(found[:, 0], squares, rtol=precision, atol=0)
    torch.testing.assert_close(found[:, 1], changes, rtol=precision, atol=0)
    scales = squares.sqrt() * reference.norm()
    torch.testing.assert_close(found[:, 2] / scales, products / scales, rtol=0, atol=precision)
    assert torch.equal(rows, before)
    origin = torch.randn(200_001, generator=generator).to(dtype)
    moved = ((wide - origin.double()) ** 2).sum(1)
    torch.testing.assert_close(row_distances(rows, origin), moved, rtol=precision, atol=0)


def test_lanes_change_nothing_but_the_time() -> None:
    def evaluation(points: np.ndarray) -> torch.Tensor:
        assert torch.get_num_threads() == 1
        return torch.from_numpy(np.repeat(points, 5, axis=1))

    found = [
        ChunkedSweep(LINE, evaluation, 3, lanes=lanes).evaluate(np.arange(11.0))[0]
        for lanes in (2, 5)
    ]
    assert np.array_equal(found[0], found[1])
    assert found[0][:, 0].tolist() == list(range(11))


def test_a_lane_that_runs_out_of_memory_halves_the_chunk_of_all() -> None:
    evaluation = Evaluation(room=2)
    sweep = ChunkedSweep(LINE, evaluation, chunk=8, lanes=2)
    columns, _ = sweep.evaluate(np.arange(16.0))
    assert (sweep.chunk, sweep.halvings) == (2, 2)
    assert columns[:, 0].tolist() == list(range(16))
