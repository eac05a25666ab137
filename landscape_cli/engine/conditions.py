"""What a run computes under from its first number to its last, as bits depend on it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from landscape_cli.engine.layout import Layout
from landscape_cli.units import RUN, UnitKey, UnitResult


@dataclass(frozen=True)
class Conditions:
    """Settled by timing where a run begins, written down, and kept to by whoever goes on with it.

    Attributes:
        threads: how many one evaluation computes with.
        layout: the order in memory of images and convolutions; empty where nothing depends on it,
            or nobody wrote it down.
    """

    threads: int
    layout: Layout | str = ""

    def unit(self) -> UnitResult:
        """Return the unit that records them."""
        return UnitResult(UnitKey(RUN, "threads", self.layout, stop=self.threads))

    @classmethod
    def recorded(cls, finished: Collection[UnitKey]) -> Conditions | None:
        """Return those that are among finished units."""
        found = (cls(key.stop, key.name) for key in finished if key.kind == "threads")
        return next(found, None)
