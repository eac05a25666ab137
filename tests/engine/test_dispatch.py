"""Units are handed out so that checkpoints stay where they are open, and none is lost."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from landscape_cli.engine.dispatch import ATTEMPTS, Dispatch
from landscape_cli.units import UnitKey


def units(*counts: int) -> dict[int, list[UnitKey]]:
    return {
        checkpoint: [UnitKey(checkpoint, "line", "gradient", k, k + 1) for k in range(count)]
        for checkpoint, count in enumerate(counts)
    }


def test_a_worker_stays_with_the_checkpoint_it_has_open() -> None:
    dispatch = Dispatch(units(3, 3))
    taken = [dispatch.take("a") for _ in range(3)]
    assert [key.checkpoint for key in taken] == [0, 0, 0]
    assert [key.start for key in taken] == [0, 1, 2]


def test_two_workers_begin_with_different_checkpoints() -> None:
    dispatch = Dispatch(units(3, 3))
    assert dispatch.take("a").checkpoint == 0
    assert dispatch.take("b").checkpoint == 1


def test_who_has_nothing_left_helps_where_most_is_left_from_the_end() -> None:
    dispatch = Dispatch(units(5))
    assert dispatch.take("a").start == 0
    assert dispatch.take("b").start == 4


def test_a_single_unit_is_not_worth_opening_a_checkpoint_for() -> None:
    dispatch = Dispatch(units(2))
    dispatch.take("a")
    assert dispatch.take("b") is None
    assert dispatch.take("a").start == 1


def test_what_a_lost_worker_had_is_handed_out_again_in_order() -> None:
    dispatch = Dispatch(units(4))
    dispatch.take("a")
    dispatch.take("a")
    assert dispatch.lose("a") == []
    assert [dispatch.take("b").start for _ in range(4)] == [0, 1, 2, 3]


def test_a_unit_that_takes_worker_after_worker_down_is_given_up_alone() -> None:
    dispatch = Dispatch(units(2))
    for attempt in range(ATTEMPTS):
        killer, innocent = dispatch.take(attempt), dispatch.take(attempt)
        hopeless = dispatch.lose(attempt)
        assert hopeless == ([killer] if attempt == ATTEMPTS - 1 else [])
    assert dispatch.take("last") == innocent
    assert dispatch.waiting == 0


def test_nothing_is_left_of_a_checkpoint_that_cannot_be_opened() -> None:
    dispatch = Dispatch(units(3, 1))
    first = dispatch.take("a")
    assert len(dispatch.give_up(0)) == 2
    dispatch.done("a", first)
    assert dispatch.take("a").checkpoint == 1
    assert dispatch.lose("a") == []


@settings(max_examples=200, deadline=None)
@given(
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    workers=st.integers(1, 4),
    events=st.randoms(use_true_random=False),
)
def test_every_unit_is_measured_whoever_is_lost(counts, workers, events) -> None:
    dispatch = Dispatch(units(*counts))
    names = itertools.count(workers)
    alive, held, finished, losses = list(range(workers)), {}, [], 0
    for _ in range(10_000):
        if not dispatch.unfinished:
            break
        worker = events.choice(alive)
        if losses < 8 and events.random() < 0.2:
            finished += dispatch.lose(worker)
            held.pop(worker, None)
            alive[alive.index(worker)] = next(names)
            losses += 1
        elif held.get(worker):
            key = held[worker].pop(0)
            dispatch.done(worker, key)
            finished.append(key)
        else:
            key = dispatch.take(worker)
            held.setdefault(worker, []).extend([key] if key else [])
    expected = [key for keys in units(*counts).values() for key in keys]
    assert sorted(finished) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(2, 9), min_size=4, max_size=12), st.integers(1, 4))
def test_checkpoints_are_hardly_opened_more_often_than_there_are(counts, workers) -> None:
    dispatch = Dispatch(units(*counts))
    at, openings = {}, 0
    while dispatch.unfinished:
        for worker in range(workers):
            key = dispatch.take(worker)
            if key is not None:
                openings += at.get(worker) != key.checkpoint
                at[worker] = key.checkpoint
                dispatch.done(worker, key)
    assert openings <= len(counts) + 2 * workers
