"""Evaluations side by side."""

from __future__ import annotations

import threading

import pytest
import torch

from landscape_cli.engine.lanes import spread


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_results_are_in_the_order_of_the_items(lanes: int) -> None:
    assert spread(lambda _, item: item * 10, list(range(7)), lanes) == list(range(0, 70, 10))
    assert spread(lambda _, item: item, [], lanes) == []


def test_lanes_run_at_once_with_one_thread_each() -> None:
    meeting = threading.Barrier(3, timeout=20)

    def meet(lane: int, _: int) -> tuple[int, int]:
        meeting.wait()  # breaks unless three are here at once
        return lane, torch.get_num_threads()

    found = spread(meet, [0, 1, 2], 3)
    assert sorted(lane for lane, _ in found) == [0, 1, 2]
    assert {threads for _, threads in found} == {1}


def test_the_number_of_threads_is_put_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for lanes in (1, 2):
            spread(lambda _, item: item, [1, 2, 3], lanes)
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_first_failure_is_raised_and_nothing_is_begun_after_it() -> None:
    begun: list[int] = []

    def fail(_: int, item: int) -> int:
        begun.append(item)
        if item >= 2:
            raise ValueError(f"item {item}")
        return item

    with pytest.raises(ValueError, match="item 2"):
        spread(fail, list(range(100)), 2)
    assert len(begun) <= 5


def test_a_lane_never_does_two_items_at_once() -> None:
    busy = [threading.Lock() for _ in range(3)]

    def work(lane: int, item: int) -> int:
        assert busy[lane].acquire(blocking=False)
        torch.randn(64, 64).sum()
        busy[lane].release()
        return item

    assert spread(work, list(range(60)), 3) == list(range(60))
