"""Interleaved timing: every contender once in each round, so that a busy machine hits them all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Name = TypeVar("Name")


@dataclass(frozen=True)
class Timing:
    """Seconds a point over the rounds.

    Attributes:
        rounds: seconds a point in every round.
    """

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median."""
        return statistics.median(self.rounds)

    @property
    def spread(self) -> tuple[float, float]:
        """The fastest and the slowest round."""
        return min(self.rounds), max(self.rounds)

    def ratio_of(self, other: Timing) -> float:
        """Return how many times faster this is than `other`: the median over rounds."""
        pairs = zip(other.rounds, self.rounds, strict=True)
        return statistics.median(slow / fast for slow, fast in pairs)


@dataclass(frozen=True)
class Contender:
    """Something that evaluates so many points when it is called."""

    run: Callable[[], object]
    points: int


CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""What is counted: time as it passes, or this process's own, for machines that others use."""


def interleave(
    contenders: Mapping[Name, Contender], rounds: int, clock: str = "wall"
) -> dict[Name, Timing]:
    """Time every contender once a round, after one round that does not count."""
    now = CLOCKS[clock]
    taken: dict[Name, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, contender in contenders.items():
            started = now()
            measured = contender.run()
            elapsed = measured if isinstance(measured, float) else now() - started
            if number:
                taken[name].append(elapsed / contender.points)
    return {name: Timing(tuple(rounds_)) for name, rounds_ in taken.items()}
