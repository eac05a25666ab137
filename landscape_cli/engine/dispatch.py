"""Which unit goes to which worker: a checkpoint stays with the one that has it open."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping

from landscape_cli.units import UnitKey

WORTH_OPENING = 2
"""Units that must be left of a checkpoint for another worker to open it too."""

ATTEMPTS = 3
"""How often a unit may take its worker down before it is given up."""


class Dispatch:
    """Hands out units, takes them back from workers that are lost, and knows what is left.

    A worker goes on with the checkpoint that it has open as long as there is anything to do
    there; then it takes one that nobody has open; then it helps where most is left, from the end.
    Opening costs a reading of the weights and a gradient: with C checkpoints and W workers there
    are at most C + W openings, beyond those that follow the loss of a worker, unless several
    rounds of help are worth it.

    Args:
        units: the units of every checkpoint, in their order.
    """

    def __init__(self, units: Mapping[int, Iterable[UnitKey]]) -> None:
        self._queues = {checkpoint: deque(keys) for checkpoint, keys in units.items()}
        self._open: dict[Hashable, int] = {}
        self._given: dict[Hashable, list[UnitKey]] = {}
        self._losses: dict[UnitKey, int] = {}
        self.failed: set[int] = set()

    @property
    def waiting(self) -> int:
        """How many units nobody has."""
        return sum(map(len, self._queues.values()))

    @property
    def unfinished(self) -> int:
        """How many units are waiting or being measured."""
        return self.waiting + sum(map(len, self._given.values()))

    def given(self, worker: Hashable) -> int:
        """Return how many units a worker has."""
        return len(self._given.get(worker, ()))

    def take(self, worker: Hashable) -> UnitKey | None:
        """Give a worker its next unit, None if there is nothing for it to do now."""
        checkpoint = self._find(worker)
        if checkpoint is None:
            return None
        shared = any(c == checkpoint for w, c in self._open.items() if w != worker)
        joins = self._open.get(worker) != checkpoint and shared
        queue = self._queues[checkpoint]
        key = queue.pop() if joins else queue.popleft()
        self._open[worker] = checkpoint
        self._given.setdefault(worker, []).append(key)
        return key

    def _find(self, worker: Hashable) -> int | None:
        """Return the checkpoint that a worker should go on with."""
        present = self._open.get(worker)
        if present is not None and self._queues[present]:
            return present
        taken = set(self._open.values())
        left = [checkpoint for checkpoint, queue in self._queues.items() if queue]
        fresh = next((checkpoint for checkpoint in left if checkpoint not in taken), None)
        if fresh is not None or not left:
            return fresh
        fullest = max(left, key=lambda checkpoint: len(self._queues[checkpoint]))
        busy = [w for w, c in self._open.items() if c == fullest and self.given(w)]
        # With nobody at work on it, what is left would wait for ever.
        worth = len(self._queues[fullest]) >= WORTH_OPENING or not busy
        return fullest if worth else None

    def done(self, worker: Hashable, key: UnitKey) -> None:
        """Note that a worker has measured a unit."""
        self._given[worker].remove(key)

    def give_up(self, checkpoint: int) -> list[UnitKey]:
        """Drop what is waiting of a checkpoint that cannot be opened, and return it."""
        self.failed.add(checkpoint)
        dropped = list(self._queues[checkpoint])
        self._queues[checkpoint].clear()
        return dropped

    def lose(self, worker: Hashable) -> list[UnitKey]:
        """Put back what a lost worker had; return the units that have cost too many workers."""
        lost = self._given.pop(worker, [])
        self._open.pop(worker, None)
        for key in lost[:1]:  # it measures them in order: the others had not begun
            self._losses[key] = self._losses.get(key, 0) + 1
        hopeless = [key for key in lost[:1] if self._losses[key] >= ATTEMPTS]
        for key in reversed(lost):
            if key not in hopeless and key.checkpoint not in self.failed:
                self._queues[key.checkpoint].appendleft(key)
        return hopeless
