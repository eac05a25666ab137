"""Progress of a measurement: a bar in a terminal, a line now and then in a log, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from landscape_cli.cli.output import console, printable
from landscape_cli.progress import Progress, Silent

if TYPE_CHECKING:
    from rich.progress import TaskID

SETTLING_SECONDS = 0.05
"""What is finished so soon was finished before: a resumed run is not fast."""

LINE_SECONDS = 10.0
"""How often a log gets a line."""


def watch(*, quiet: bool, unit: str = "points") -> Bar | Lines | Quiet:
    """Return the progress that fits where standard error goes, as a context manager."""
    if quiet:
        return Quiet()
    return Bar(unit) if sys.stderr.isatty() else Lines(unit)


class Pace:
    """How fast work is finished, and how long the rest will take."""

    def __init__(self, total: int, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = total
        self.unit = unit
        self.done = 0
        self._clock = clock
        self._began = clock()
        self._known = 0

    def advance(self, points: int) -> None:
        """Count points as finished."""
        self.done += points
        if self._clock() - self._began < SETTLING_SECONDS:
            self._known = self.done

    @property
    def rate(self) -> float:
        """Points per second, 0 as long as it is not known."""
        seconds = self._clock() - self._began
        return (self.done - self._known) / seconds if seconds > SETTLING_SECONDS else 0.0

    def text(self) -> str:
        """Return rate and time left."""
        if not self.rate:
            return ""
        left = max(self.total - self.done, 0) / self.rate
        return f"{rate_text(self.rate, self.unit)}, {duration_text(left)} left"


def rate_text(rate: float, unit: str) -> str:
    """Return points per second, or seconds per point where that is more telling."""
    one = unit.removesuffix("s")
    return f"{rate:.3g} {unit}/s" if rate >= 1 else f"{1 / rate:.3g} s/{one}"


def duration_text(seconds: float) -> str:
    """Return a duration as H:MM:SS or M:SS."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Quiet(Silent):
    """Progress that nobody wants to see."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing was opened."""


class Lines(Quiet):
    """Progress in a log: one line when it begins, then every ten seconds, then at the end."""

    def __init__(self, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._unit = unit
        self._pace = Pace(0, unit, clock)
        self._last = 0.0

    def start(self, points: int) -> None:
        """Begin."""
        self._pace = Pace(points, self._unit, self._clock)
        self._last = self._clock()
        _print(f"{points} {self._unit} to do")

    def advance(self, points: int, where: str) -> None:
        """Count, and write a line where one is due."""
        self._pace.advance(points)
        finished = points > 0 and self._pace.done >= self._pace.total
        if finished or self._clock() - self._last >= LINE_SECONDS:
            self._last = self._clock()
            parts = (f"{self._pace.done}/{self._pace.total} {self._unit}", self._pace.text(), where)
            _print(", ".join(filter(None, parts)))

    def notice(self, text: str) -> None:
        """Write a line."""
        _print(f"note: {text}")


class Bar:
    """Progress in a terminal: a bar with rate and time left."""

    def __init__(self, unit: str) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._unit = unit
        self._pace = Pace(0, unit)
        self._task: TaskID | None = None
        self._bar = RichProgress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TextColumn("{task.fields[pace]}", markup=False),
            TextColumn("{task.description}", markup=False),
            console=console(stderr=True),
            transient=True,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def start(self, points: int) -> None:
        """Begin."""
        self._pace = Pace(points, self._unit)
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task("", total=points, pace="")

    def advance(self, points: int, where: str) -> None:
        """Move the bar."""
        self._pace.advance(points)
        if self._task is not None:
            changes: dict[str, Any] = {"pace": self._pace.text(), "description": printable(where)}
            self._bar.update(self._task, completed=self._pace.done, **changes)

    def notice(self, text: str) -> None:
        """Write a line above the bar."""
        self._bar.console.print(f"note: {printable(text)}", soft_wrap=True)


def _print(text: str) -> None:
    print(printable(text), file=sys.stderr, flush=True)


_: type[Progress] = Bar
"""The bar is a `Progress`, by what it does."""
