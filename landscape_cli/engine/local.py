"""The local engine: every unit of a plan, in this process, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from landscape_cli.engine.worker import Worker, describe, failure
from landscape_cli.errors import LandscapeError
from landscape_cli.plan import Plan
from landscape_cli.progress import Progress
from landscape_cli.units import UnitKey, UnitResult

UNIT_POINTS = 8
"""Points of a line that are measured and journalled together where nothing else decides."""

Task = tuple[UnitKey, Callable[[Worker], UnitResult]]


def tasks(plan: Plan, checkpoint: int, unit_points: int) -> Iterator[Task]:
    """Yield the units of one checkpoint in their order, each with what measures it."""
    yield UnitKey(checkpoint, "base"), lambda worker: worker.base(checkpoint)
    count = len(plan.step_multiples)
    for label in plan.directions:
        for start in range(0, count, unit_points):
            stop = min(start + unit_points, count)
            key = UnitKey(checkpoint, "line", label, start, stop)
            yield key, partial(_line, key)
    for name in plan.provenance.get("site_measures", ()):
        yield UnitKey(checkpoint, "measure", name), partial(_measure, checkpoint, name)


def _line(key: UnitKey, worker: Worker) -> UnitResult:
    return worker.line(key.checkpoint, key.name, key.start, key.stop)


def _measure(checkpoint: int, name: str, worker: Worker) -> UnitResult:
    return worker.measure(checkpoint, name)


def run(
    plan: Plan,
    worker: Worker,
    *,
    finished: Collection[UnitKey],
    unit_points: int,
    progress: Progress,
) -> Iterator[UnitResult]:
    """Measure what is not finished yet and yield every unit as it is done.

    A checkpoint that cannot be opened yields one failure; the others go on.
    """
    for checkpoint, planned in enumerate(plan.checkpoints):
        remaining = []
        for key, measure in tasks(plan, checkpoint, unit_points):
            if key in finished:
                progress.advance(key.stop - key.start, planned.label)
            else:
                remaining.append((key, measure))
        yield from _run_checkpoint(worker, remaining, planned.label, progress)
    worker.close()


def _run_checkpoint(
    worker: Worker, remaining: list[Task], label: str, progress: Progress
) -> Iterator[UnitResult]:
    if not remaining:
        return
    try:
        worker.site(remaining[0][0].checkpoint)
    except LandscapeError as error:
        key = UnitKey(remaining[0][0].checkpoint, "failure")
        progress.notice(f"{label}: {error.what}")
        progress.advance(sum(key.stop - key.start for key, _ in remaining), label)
        yield failure(key, error)
        return
    for key, measure in remaining:
        where = f"{label} {key.name}".strip()
        try:
            unit = measure(worker)
        except (LandscapeError, RuntimeError) as error:
            told = describe(error)
            progress.notice(f"{where}: {told.what}")
            unit = failure(key, told)
        progress.advance(key.stop - key.start, where)
        yield unit
