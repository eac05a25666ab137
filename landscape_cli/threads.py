"""How many threads a run computes with: all of them, or one where more only get in the way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

QUICK_SECONDS = 0.01
"""Evaluations that one thread finishes sooner are left to it: waking others costs as much."""
ADVANTAGE = 0.9
"""All threads must take at most this share of the time of one."""


def settle(evaluate: Callable[[], object]) -> int:
    """Return the number of threads that suits `evaluate`, by timing it twice with each.

    On a machine that others use, threads that wait for each other can be many times slower than
    one. A number in ``OMP_NUM_THREADS`` is taken as it is.
    """
    most = torch.get_num_threads()
    if most == 1 or "OMP_NUM_THREADS" in os.environ or torch.cuda.is_available():
        return most
    with limited(1):
        alone = seconds(evaluate)
    if alone < QUICK_SECONDS:
        return 1
    return most if seconds(evaluate) < alone * ADVANTAGE else 1


def seconds(evaluate: Callable[[], object]) -> float:
    """Return the seconds of the faster one of two calls, as the first one warms up."""
    taken = []
    for _ in range(2):
        started = time.perf_counter()
        evaluate()
        taken.append(time.perf_counter() - started)
    return min(taken)


def shared(processes: int) -> int:
    """Return how many threads each of several processes may compute with: its share of the cores.

    A number in ``OMP_NUM_THREADS`` is of every process, and taken as it is.
    """
    most = torch.get_num_threads()
    return most if "OMP_NUM_THREADS" in os.environ else max(1, most // processes)


@contextmanager
def limited(count: int) -> Iterator[None]:
    """Compute with `count` threads, and put the number back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
