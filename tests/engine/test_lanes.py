"""Evaluations side by side."""

from __future__ import annotations

import threading

import engine_cases
import pytest
import torch
from engine_cases import PROBLEMS

from landscape_cli.engine import lanes as engine_lanes
from landscape_cli.engine.lanes import free_lanes, spread
from landscape_cli.threads import limited


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


def test_chunks_go_side_by_side_where_they_are_large_and_threads_are_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with engine_cases.open_site(PROBLEMS["mlp-relu"]) as site:
        monkeypatch.setattr(engine_lanes, "WORTH_NUMBERS", 8 * site.parameters.count)
        with limited(1):
            assert free_lanes(site, 8) == site.threads == 2
            assert free_lanes(site, 7) == 1
        with limited(2):
            assert free_lanes(site, 8) == 1
