"""The engine Ray: the units of a plan on the workers of a cluster, their results to one writer."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from landscape_cli.engine.choice import Choice
from landscape_cli.engine.dispatch import Dispatch
from landscape_cli.engine.station import Greeting, Opener, Outcome, Place, Settled, Station
from landscape_cli.engine.tasks import keys_of, recorded_choices, whole_chunks
from landscape_cli.engine.worker import describe, failure
from landscape_cli.errors import LandscapeError, MeasurementError
from landscape_cli.plan import Plan
from landscape_cli.progress import Progress
from landscape_cli.specs import ProbeSpec
from landscape_cli.units import UnitKey, UnitResult

RUN = -1
"""The checkpoint of a unit that concerns the whole run."""
WAIT_SECONDS = 600.0
"""How long a run waits for a cluster without a single worker."""
REACH_SECONDS = 10.0
"""How long the head of a cluster may take to answer."""
LOSSES_IN_A_ROW = 3
"""How many workers may be lost without a unit being finished, beyond one for each of them."""
PREFETCH = 2
"""Units that a worker has: the one it measures and the one that it goes on with."""


@dataclass
class Member:
    """A worker of the cluster, as the driver sees it."""

    number: int
    handle: Any
    greeting: Greeting | None = None


@dataclass
class _Run:
    """A plan while it is being measured."""

    plan: Plan
    dispatch: Dispatch
    settled: Settled
    progress: Progress
    told: set[str] = field(default_factory=set)


class Cluster:
    """Workers on a Ray cluster, from entering to leaving.

    Units are idempotent, and nothing but them comes back: whatever is lost with a worker or a
    machine is measured again by another one. Model, batches and plan are sent once and fetched
    once by every worker; checkpoints are read where they are measured, from the same paths.

    Args:
        spec: of the run; engine, workers, gpus_per_worker, address and device are used.
        opener: builds a worker; it is pickled.
        progress: is told what happens to the cluster.
    """

    def __init__(self, spec: ProbeSpec, opener: Opener, progress: Progress) -> None:
        self._ray = _import_ray()
        self._spec, self._opener, self._progress = spec, opener, progress
        self._cpus = _threads_wanted()
        self._gpus = 0.0
        self._owned = False
        self._members: list[Member] = []
        self._pending: dict[Any, tuple[Member, UnitKey | None]] = {}
        self._started = self._losses = 0

    def __enter__(self) -> Cluster:
        self._owned = _connect(self._ray, self._spec, self._cpus)
        try:
            self._gpus = self._gpus_per_worker()
            self._sent = self._send(self._opener)
            for _ in range(self._spec.workers):
                self._start_member()
            self._wait_for_one()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for member in self._members:
            self._ray.kill(member.handle, no_restart=True)
        self._members.clear()
        self._pending.clear()
        if self._owned:
            self._ray.shutdown()

    @property
    def device(self) -> str:
        """What the first worker computes on."""
        greeting = next(m.greeting for m in self._members if m.greeting is not None)
        return greeting.device

    @property
    def ready(self) -> list[Member]:
        """The workers that can be given work."""
        return [member for member in self._members if member.greeting is not None]

    def _gpus_per_worker(self) -> float:
        if self._spec.gpus_per_worker is not None:
            return self._spec.gpus_per_worker
        has_gpus = self._ray.cluster_resources().get("GPU", 0) > 0
        return 1.0 if has_gpus and self._spec.device != "cpu" else 0.0

    def _send(self, opener: Opener) -> Any:
        """Put what workers are built from where every one of them fetches it once."""
        try:
            return self._ray.put(self._ray.cloudpickle.dumps(opener))
        except Exception as error:
            raise MeasurementError(
                "the model or the data cannot be sent to other processes",
                seen=f"{type(error).__name__}: {_first_line(error)}",
                hint="give them as specs: FILE.py:FACTORY or ADAPTER:TARGET",
            ) from error

    def _start_member(self) -> None:
        kind = self._ray.remote(Station).options(
            num_cpus=self._cpus,
            num_gpus=self._gpus,
            max_restarts=0,
            scheduling_strategy="SPREAD",
        )
        member = Member(self._started, kind.remote(self._sent))
        self._started += 1
        device = "cpu" if self._spec.device == "auto" and not self._gpus else self._spec.device
        place = Place(device, str(Path.cwd()), tuple(sys.path))
        ref = member.handle.open.remote(place)
        self._members.append(member)
        self._pending[ref] = (member, None)

    def _wait_for_one(self) -> None:
        """Wait until one worker is ready, so that there is somebody to ask."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not self.ready:
            for _ in self._arrivals():
                pass
            if not self._members or time.monotonic() > deadline:
                raise self._starved()

    def _starved(self) -> MeasurementError:
        resources = self._ray.cluster_resources()
        have = ", ".join(f"{resources.get(kind, 0):g} {kind}" for kind in ("CPU", "GPU"))
        return MeasurementError(
            "no worker of the cluster could be started",
            seen=f"each needs {self._cpus} CPU, {self._gpus:g} GPU; the cluster has {have}",
            hint="`ray status` shows what is taken; --resume goes on with what was measured",
        )

    def run(
        self,
        plan: Plan,
        *,
        finished: Collection[UnitKey],
        unit_points: int,
        progress: Progress,
    ) -> Generator[UnitResult, None, None]:
        """Measure what is not finished yet and yield every unit as it comes in.

        Threads, strategy and chunk are as recorded, or settled by one worker for all.
        """
        choices = recorded_choices(finished)
        threads = next((key.stop for key in finished if key.kind == "threads"), 0)
        if not threads:
            threads = int(self._ask("settle_threads"))
            yield UnitResult(UnitKey(RUN, "threads", stop=threads))
        if not choices:
            unit = self._choose(plan, threads)
            if unit is not None:
                choices = recorded_choices([unit.key])
                yield unit
        first = choices[0][0].chunk if choices else 1
        settled = Settled(threads, *choices[-1]) if choices else Settled(threads, Choice("plain"))
        units = _remaining(plan, whole_chunks(unit_points, first), finished, progress)
        yield from self._loop(_Run(plan, Dispatch(units), settled, progress))

    def _choose(self, plan: Plan, threads: int) -> UnitResult | None:
        """Let one worker choose the strategy, at the first checkpoint that can be opened."""
        for checkpoint in range(len(plan.checkpoints)):
            found = self._ask("choose", checkpoint, threads)
            if found is not None:
                unit: UnitResult = found
                return unit
        return None

    def _ask(self, question: str, *about: object) -> Any:
        """Ask one worker, and another one if that is lost meanwhile."""
        while True:
            self._wait_for_one()
            member = self.ready[0]
            try:
                return self._ray.get(getattr(member.handle, question).remote(*about))
            except self._ray.exceptions.RayTaskError as error:
                raise _cause(error) from None
            except self._ray.exceptions.RayError as error:
                self._lose(member, error)

    def _loop(self, run: _Run) -> Iterator[UnitResult]:
        starved_at = time.monotonic() + WAIT_SECONDS
        while run.dispatch.unfinished:
            self._feed(run)
            for member, key, outcome in self._arrivals():
                if isinstance(outcome, Outcome) and key is not None:
                    self._losses = 0
                    run.dispatch.done(member.number, key)
                    yield from self._receive(run, key, outcome)
                else:
                    yield from self._mourn(run, member)
            if self.ready:
                starved_at = time.monotonic() + WAIT_SECONDS
            elif time.monotonic() > starved_at or not self._members:
                raise self._starved()

    def _feed(self, run: _Run) -> None:
        """Give every worker something to do, and what it goes on with while there is plenty."""
        for member in self.ready:
            plenty = run.dispatch.waiting > len(self._members)
            while run.dispatch.given(member.number) < (PREFETCH if plenty else 1):
                key = run.dispatch.take(member.number)
                if key is None:
                    break
                ref = member.handle.measure.remote(key, run.settled)
                self._pending[ref] = (member, key)

    def _arrivals(self) -> Iterator[tuple[Member, UnitKey | None, object]]:
        """Wait a moment and yield what has come in: outcomes, and workers that are lost."""
        ray = self._ray
        if not self._pending:
            return
        done, _ = ray.wait(list(self._pending), num_returns=1, timeout=1.0)
        for ref in done:
            if ref not in self._pending:
                continue  # of a worker that was lost a moment ago
            member, key = self._pending.pop(ref)
            try:
                outcome = ray.get(ref)
            except ray.exceptions.RayTaskError as error:
                if key is not None or not self.ready:
                    raise _cause(error) from None
                self._progress.notice(f"a worker could not begin: {_first_line(_cause(error))}")
                self._members.remove(member)
                continue
            except ray.exceptions.RayError as error:
                self._lose(member, error)
                yield member, key, None
                continue
            if isinstance(outcome, Greeting):
                self._welcome(member, outcome)
            else:
                yield member, key, outcome

    def _welcome(self, member: Member, greeting: Greeting) -> None:
        others = {m.greeting.device for m in self.ready if m.greeting is not None}
        member.greeting = greeting
        if others and greeting.device not in others:
            self._progress.notice(
                f"a worker computes on {greeting.device}, others on {', '.join(sorted(others))}: "
                "their rounding is not the same"
            )

    def _lose(self, member: Member, error: Exception) -> None:
        """Let go of a worker that does not answer, and start another in its place."""
        where = f" on {member.greeting.host}" if member.greeting else ""
        self._members.remove(member)
        for ref in [ref for ref, (owner, _) in self._pending.items() if owner is member]:
            del self._pending[ref]
        self._ray.kill(member.handle, no_restart=True)
        self._losses += 1
        if self._losses > LOSSES_IN_A_ROW + self._spec.workers:
            raise MeasurementError(
                "workers are lost again and again",
                seen=_first_line(error),
                hint="--resume goes on; fewer workers on a machine leave each more memory",
            )
        self._start_member()
        self._progress.notice(
            f"a worker{where} was lost; {len(self.ready)} of {self._spec.workers} are at work, "
            "another is starting"
        )

    def _mourn(self, run: _Run, member: Member) -> Iterator[UnitResult]:
        """Put back what a lost worker had to do, and yield what nobody survives."""
        for key in run.dispatch.lose(member.number):
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
        at_work = f"{len(self.ready)}/{self._spec.workers} workers"
        run.progress.advance(points, f"{label} {key.name}".strip() + f", {at_work}")
        if not again:
            yield unit
        for other in revised:
            if other.key.start > run.settled.revision:
                (choice, revision), *_ = recorded_choices([other.key])
                run.settled = Settled(run.settled.threads, choice, revision)
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


def _threads_wanted() -> int:
    """Return the CPUs of a worker: ``OMP_NUM_THREADS`` where it says so, else one."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(text)) if text.isdecimal() else 1


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MeasurementError(
            "the engine ray is not installed",
            seen=str(error),
            hint='pip install "landscape-cli[ray]", or --engine local',
        ) from None
    return ray


def _connect(ray: Any, spec: ProbeSpec, cpus: int) -> bool:
    """Connect to the cluster that is asked for, or start one; return whether to end it later."""
    if ray.is_initialized():
        return False
    logging.getLogger("ray").setLevel(logging.ERROR)
    common = {"configure_logging": False, "log_to_driver": False}
    address = spec.address or os.environ.get("RAY_ADDRESS")
    try:
        if address is None:
            count = max(os.cpu_count() or 1, spec.workers * cpus)
            ray.init("local", num_cpus=count, include_dashboard=False, **common)
        else:
            _check_address(address)
            ray.init(address, **common)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise MeasurementError(
            "the Ray cluster cannot be reached" if address else "Ray cannot be started here",
            seen=f"{address or 'this machine'}: {_first_line(error)}",
            hint="--address HOST:PORT of its head, from one of its nodes, with the RAY_AUTH_MODE "
            "and RAY_AUTH_TOKEN that it was started with"
            if address
            else "--engine local",
        ) from error
    return True


def _check_address(address: str) -> None:
    """Knock at HOST:PORT first, as Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()


def _cause(error: Any) -> LandscapeError:
    """Return what was raised in a worker as one of our errors."""
    cause = getattr(error, "cause", None)
    return describe(cause if isinstance(cause, Exception) else error)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]
