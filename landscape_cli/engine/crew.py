"""Several workers at one plan, wherever they are: who measures what, and what if one is lost."""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from landscape_cli.engine.choice import Choice
from landscape_cli.engine.conditions import Conditions
from landscape_cli.engine.dispatch import Dispatch
from landscape_cli.engine.station import Greeting, Outcome, Settled
from landscape_cli.engine.tasks import keys_of, recorded_choices, whole_chunks
from landscape_cli.engine.worker import failure
from landscape_cli.errors import LandscapeError, MeasurementError
from landscape_cli.plan import Plan, device_kinds
from landscape_cli.progress import Progress
from landscape_cli.units import UnitKey, UnitResult

WAIT_SECONDS = 600.0
"""How long a run waits without a single worker."""
LOSSES_IN_A_ROW = 3
"""How many workers may be lost without a unit being finished, beyond one for each of them."""
PREFETCH = 2
"""Units that a worker has: the one it measures and the one that it goes on with."""


@dataclass(frozen=True)
class Call:
    """A method of a `Station`, and what it is called with."""

    question: str
    about: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What a worker returned, or raised. The first of each is its `Greeting`."""

    number: int
    call: Call
    value: Any = None
    error: LandscapeError | None = None


@dataclass(frozen=True)
class Loss:
    """A worker that will not answer any more.

    Attributes:
        number: of the worker.
        told: for the user: ``a worker on cpu was lost``, and how.
        seen: for the error of a run that loses worker after worker.
    """

    number: int
    told: str
    seen: str


class Transport(AbstractContextManager["Transport"], Protocol):
    """Starts workers somewhere, takes questions to them and brings back what comes of it.

    A worker is known by a number that no other has. It answers what it is asked in that order.
    On leaving, no worker is left.

    Attributes:
        size: how many workers a run is to have.
        threads: how many threads a worker has room for; 0 where that is not known.
    """

    size: int
    threads: int

    def start(self, number: int) -> None:
        """Begin to start a worker, which opens its station and so greets."""
        ...

    def ask(self, number: int, call: Call) -> None:
        """Ask a worker for something; one that is lost says nothing to that."""
        ...

    def arrivals(self) -> list[Answer | Loss]:
        """Wait a second at most, and return what has come in."""
        ...

    def stop(self, number: int) -> None:
        """Let go of a worker, whatever it is doing."""
        ...

    def starved(self) -> MeasurementError:
        """Return the error of a run for which no worker could be started."""
        ...


@dataclass
class _Run:
    """A plan while it is being measured."""

    plan: Plan
    dispatch: Dispatch
    settled: Settled
    progress: Progress
    told: set[str] = field(default_factory=set)


class Crew:
    """Workers of one run, from entering to leaving.

    Units are idempotent, and nothing but them comes back: whatever is lost with a worker is
    measured again by another one.

    Args:
        transport: where the workers are.
        progress: is told what happens to them.
    """

    def __init__(self, transport: Transport, progress: Progress) -> None:
        self._transport, self._progress = transport, progress
        self._members: dict[int, Greeting | None] = {}
        self._started = self._losses = 0
        self._stack = ExitStack()

    def __enter__(self) -> Crew:
        with ExitStack() as stack:
            stack.enter_context(self._transport)
            for _ in range(self._transport.size):
                self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._members.clear()
        self._stack.close()

    def _start(self) -> None:
        number = self._started
        self._started += 1
        self._members[number] = None
        self._transport.start(number)

    @property
    def ready(self) -> dict[int, Greeting]:
        """The workers that can be given work."""
        return {number: met for number, met in self._members.items() if met is not None}

    @property
    def device(self) -> str:
        """What the first worker computes on, as soon as it says so."""
        self._wait_for_one()
        return next(iter(self.ready.values())).device

    def _wait_for_one(self) -> None:
        """Wait until one worker is ready, so that there is somebody to ask."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.ready:
            for _ in self._arrivals():
                pass
            if not self._members or time.monotonic() > deadline:
                raise self._transport.starved()

    def run(
        self,
        plan: Plan,
        *,
        finished: Collection[UnitKey],
        unit_points: int,
        progress: Progress,
    ) -> Generator[UnitResult, None, None]:
        """Measure what is not finished yet and yield every unit as it comes in.

        Conditions, strategy and chunk are as recorded, or settled by one worker for all.
        """
        choices = recorded_choices(finished)
        conditions = Conditions.recorded(finished)
        if conditions is None:
            conditions = self._ask("settle")
            yield conditions.unit()
        elif 0 < self._transport.threads < conditions.threads:
            self._warn_of_crowding(conditions.threads)
        if not choices:
            unit = self._choose(plan, conditions)
            if unit is not None:
                choices = recorded_choices([unit.key])
                yield unit
        first = choices[0][0].chunk if choices else 1
        settled = Settled(conditions, *(choices[-1] if choices else (Choice("plain"),)))
        units = _remaining(plan, whole_chunks(unit_points, first), finished, progress)
        yield from self._loop(_Run(plan, Dispatch(units), settled, progress))

    def _warn_of_crowding(self, threads: int) -> None:
        self._progress.notice(
            f"the run was begun with {threads} threads, and goes on with as many for equal "
            f"numbers: each of {self._transport.size} workers has room for "
            f"{self._transport.threads}"
        )

    def _choose(self, plan: Plan, conditions: Conditions) -> UnitResult | None:
        """Let one worker choose the strategy, at the first checkpoint that can be opened."""
        for checkpoint in range(len(plan.checkpoints)):
            found = self._ask("choose", checkpoint, conditions)
            if found is not None:
                unit: UnitResult = found
                return unit
        return None

    def _ask(self, question: str, *about: object) -> Any:
        """Ask one worker, and another one if that is lost meanwhile."""
        call = Call(question, about)
        while True:
            self._wait_for_one()
            number = next(iter(self.ready))
            self._transport.ask(number, call)
            while number in self._members:
                answers = [found for found in self._arrivals() if isinstance(found, Answer)]
                if answers:
                    return answers[0].value

    def _loop(self, run: _Run) -> Iterator[UnitResult]:
        starved_at = time.monotonic() + WAIT_SECONDS
        while run.dispatch.unfinished:
            self._feed(run)
            for arrival in self._arrivals():
                if isinstance(arrival, Loss):
                    yield from self._mourn(run, arrival)
                else:
                    self._losses = 0
                    (key, _) = arrival.call.about
                    run.dispatch.done(arrival.number, key)
                    yield from self._receive(run, key, arrival.value)
            if self.ready:
                starved_at = time.monotonic() + WAIT_SECONDS
            elif time.monotonic() > starved_at or not self._members:
                raise self._transport.starved()

    def _feed(self, run: _Run) -> None:
        """Give every worker something to do, and what it goes on with while there is plenty."""
        for number in self.ready:
            plenty = run.dispatch.waiting > len(self._members)
            while run.dispatch.given(number) < (PREFETCH if plenty else 1):
                key = run.dispatch.take(number)
                if key is None:
                    break
                self._transport.ask(number, Call("measure", (key, run.settled)))

    def _arrivals(self) -> Iterator[Answer | Loss]:
        """Wait a moment and yield what was asked for and has come in, and who was lost."""
        for arrival in self._transport.arrivals():
            if arrival.number not in self._members:
                continue  # of a worker that was lost a moment ago
            if isinstance(arrival, Loss):
                self._replace(arrival)
                yield arrival
            elif arrival.error is not None:
                self._refuse(arrival.number, arrival.error)
            elif isinstance(arrival.value, Greeting):
                self._welcome(arrival.number, arrival.value)
            else:
                yield arrival

    def _refuse(self, number: int, error: LandscapeError) -> None:
        """Do without a worker that cannot begin; an error of one at work ends the run."""
        if self._members[number] is not None or not self.ready:
            raise error
        self._progress.notice(f"a worker could not begin: {error.what}: {error.seen}")
        del self._members[number]
        self._transport.stop(number)

    def _welcome(self, number: int, greeting: Greeting) -> None:
        others = {met.device for met in self.ready.values()}
        self._members[number] = greeting
        known = {kind for other in others for kind in device_kinds(other)}
        if others and not device_kinds(greeting.device) <= known:
            self._progress.notice(
                f"a worker computes on {greeting.device}, others on {', '.join(sorted(others))}: "
                "their rounding is not the same"
            )

    def _replace(self, loss: Loss) -> None:
        """Let go of a worker that does not answer, and start another in its place."""
        del self._members[loss.number]
        self._transport.stop(loss.number)
        self._losses += 1
        if self._losses > LOSSES_IN_A_ROW + self._transport.size:
            raise MeasurementError(
                "workers are lost again and again",
                seen=loss.seen,
                hint="--resume goes on; fewer workers on a machine leave each more memory",
            )
        self._start()
        self._progress.notice(f"{loss.told}; {self._at_work()} are at work, another is starting")

    def _at_work(self) -> str:
        return f"{len(self.ready)} of {self._transport.size}"

    def _mourn(self, run: _Run, loss: Loss) -> Iterator[UnitResult]:
        """Put back what a lost worker had to do, and yield what nobody survives."""
        for key in run.dispatch.lose(loss.number):
            error = MeasurementError(
                "a worker died of it, again and again", seen=key.name or key.kind
            )
            yield from self._receive(run, key, Outcome((failure(key, error),), opened=True))

    def _receive(self, run: _Run, key: UnitKey, outcome: Outcome) -> Iterator[UnitResult]:
        """Yield the units of an outcome, and keep to a choice that was revised."""
        label = run.plan.checkpoints[key.checkpoint].label
        points = key.stop - key.start
        unit, *revised = outcome.units
        again = not outcome.opened and key.checkpoint in run.dispatch.failed
        if not outcome.opened:
            dropped = run.dispatch.give_up(key.checkpoint)
            points += sum(other.stop - other.start for other in dropped)
        if unit.error and unit.error not in run.told:
            run.told.add(unit.error)
            run.progress.notice(f"{label} {key.name}".strip() + f": {unit.error}")
        at_work = f"{len(self.ready)}/{self._transport.size} workers"
        run.progress.advance(points, f"{label} {key.name}".strip() + f", {at_work}")
        if not again:
            yield unit
        for other in revised:
            if other.key.start > run.settled.revision:
                (choice, revision), *_ = recorded_choices([other.key])
                run.settled = replace(run.settled, choice=choice, revision=revision)
                yield other


def _remaining(
    plan: Plan, unit_points: int, finished: Collection[UnitKey], progress: Progress
) -> dict[int, list[UnitKey]]:
    """Return the units of every checkpoint that are not finished; the others are advanced past."""
    remaining: dict[int, list[UnitKey]] = {}
    for checkpoint, planned in enumerate(plan.checkpoints):
        remaining[checkpoint] = []
        for key in keys_of(plan, checkpoint, unit_points):
            if key in finished:
                progress.advance(key.stop - key.start, planned.label)
            else:
                remaining[checkpoint].append(key)
    return remaining
