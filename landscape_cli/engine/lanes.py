"""Lanes: evaluations side by side, each in a thread of its own that computes with one thread.

Torch splits the loops of one operation over threads, and small operations wait for each other
more than they compute. Whole evaluations have nothing to wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

import torch

from landscape_cli.site import Site
from landscape_cli.threads import limited

Item = TypeVar("Item")
Result = TypeVar("Result")


WORTH_NUMBERS = 1_000_000
"""Numbers of θ in a chunk from which its operations take longer than handing them out in turn."""


def free_lanes(site: Site, chunk: int) -> int:
    """Return how many chunks of so many points are evaluated side by side, with one thread each.

    Python hands out operations one at a time, whatever the lane: small ones gain nothing. Where
    one evaluation computes with several threads, there is nobody left for a second.
    """
    small = chunk * site.parameters.count < WORTH_NUMBERS
    if small or site.parameters.device.type != "cpu" or torch.get_num_threads() > 1:
        return 1
    return site.threads


def spread(
    evaluate: Callable[[int, Item], Result], items: Sequence[Item], lanes: int
) -> list[Result]:
    """Return ``evaluate(lane, item)`` of every item, in the order of the items.

    A lane takes the next item as soon as it is free. The results do not depend on the number of
    lanes, as every evaluation computes with one thread.

    Args:
        evaluate: is called with the number of the lane, 0 ≤ lane < lanes, and an item.
        items: what is evaluated.
        lanes: how many evaluations run at once.

    Raises:
        Exception: What the evaluation of the first item that failed raised; no lane takes
            another item after a failure or an interrupt.

    Example:
        >>> spread(lambda lane, item: item**2, [1, 2, 3], 2)
        [1, 4, 9]
    """
    with limited(1):
        if lanes <= 1 or len(items) <= 1:
            return [evaluate(0, item) for item in items]
        return _side_by_side(evaluate, items, min(lanes, len(items)))


def _side_by_side(
    evaluate: Callable[[int, Item], Result], items: Sequence[Item], lanes: int
) -> list[Result]:
    results: dict[int, Result] = {}
    failures: dict[int, Exception] = {}
    remaining, lock, stop = iter(range(len(items))), threading.Lock(), threading.Event()

    def run(lane: int) -> None:
        while not stop.is_set():
            with lock:
                position = next(remaining, None)
            if position is None:
                return
            try:
                results[position] = evaluate(lane, items[position])
            except Exception as error:  # noqa: BLE001 - raised again by the one who asked
                failures[position] = error
                stop.set()

    running = [_pool(lanes).submit(run, lane) for lane in range(lanes)]
    try:
        for lane in running:
            lane.result()
    finally:
        stop.set()
        wait(running)
    if failures:
        raise failures[min(failures)]
    return [results[position] for position in range(len(items))]


@cache
def _pool(lanes: int) -> ThreadPoolExecutor:
    """Return threads that are kept: a new one makes its libraries allocate their buffers anew."""
    return ThreadPoolExecutor(
        lanes,
        thread_name_prefix="lane",
        initializer=torch.set_num_threads,  # holds for the thread that says it
        initargs=(1,),
    )
