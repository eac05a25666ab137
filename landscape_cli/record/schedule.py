"""Which training steps are recorded."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from operator import index
from typing import SupportsIndex

from landscape_cli.errors import SpecError

DEFAULT_EVERY = 100


@dataclass(frozen=True)
class Schedule:
    """The steps to record: those that any of its parts names.

    Attributes:
        every: multiples of this, 0 included; None for no such part.
        at: these very steps.
        per_decade: about this many in every power of ten, and 0; 3 gives 1, 2, 5, 10, 20, …;
            0 for no such part.

    Example:
        >>> schedule = Schedule.of(schedule="log")
        >>> [step for step in range(101) if step in schedule]
        [0, 1, 2, 5, 10, 20, 50, 100]
    """

    every: int | None = None
    at: frozenset[int] = frozenset()
    per_decade: int = 0

    @classmethod
    def of(
        cls, every: int | None = None, at: Iterable[int] = (), schedule: str | None = None
    ) -> Schedule:
        """Read the three arguments of a recorder; none of them is every 100th step.

        Raises:
            SpecError: If one of them cannot be meant.
        """
        steps = frozenset(_whole(step, "at", 0) for step in at)
        per_decade = _per_decade(schedule)
        if every is None and not steps and not per_decade:
            every = DEFAULT_EVERY
        return cls(None if every is None else _whole(every, "every", 1), steps, per_decade)

    def __contains__(self, step: int) -> bool:
        if step in self.at or (self.every is not None and step % self.every == 0):
            return True
        return bool(self.per_decade) and _on_log_grid(step, self.per_decade)


def _whole(value: object, name: str, low: int) -> int:
    whole = isinstance(value, SupportsIndex) and not isinstance(value, bool)
    if whole and index(value) >= low:  # type: ignore[arg-type]
        return index(value)  # type: ignore[arg-type]
    raise SpecError(
        f"{name}= of the recorder is not a step",
        seen=repr(value),
        hint=f"a whole number from {low}",
    )


def _per_decade(text: str | None) -> int:
    if text is None:
        return 0
    name, _, count = text.partition(":")
    if name == "log" and text == "log":
        return 3
    if name == "log" and count.isdecimal() and 1 <= int(count) <= 1000:
        return int(count)
    raise SpecError(
        "no such schedule", seen=text, hint='schedule="log" (1, 2, 5, 10, …) or "log:10" per decade'
    )


def _on_log_grid(step: int, per_decade: int) -> bool:
    """Whether a step is 0 or the rounded value of a point on the grid."""
    if step == 0:
        return True
    if per_decade == 3:
        digits = str(step).rstrip("0")
        return digits in ("1", "2", "5")
    nearest = round(math.log10(step) * per_decade)
    return any(round(10 ** (k / per_decade)) == step for k in (nearest - 1, nearest, nearest + 1))
