"""The local engine: every unit of a plan, in this process, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from landscape_cli.engine.choice import Choice
from landscape_cli.engine.worker import Worker, describe, failure
from landscape_cli.errors import LandscapeError
from landscape_cli.plan import Plan
from landscape_cli.progress import Progress
from landscape_cli.units import UnitKey, UnitResult

UNIT_POINTS = 8
"""Points of a line that are measured and journalled together where nothing else decides."""

PLANE_POINTS = 32
"""The same for the points of a plane, which have no gradient."""

Task = tuple[UnitKey, Callable[[Worker], UnitResult]]


def tasks(plan: Plan, checkpoint: int, unit_points: int) -> Iterator[Task]:
    """Yield the units of one checkpoint in their order, each with what measures it."""
    whole = unit_points
    yield UnitKey(checkpoint, "base"), lambda worker: worker.base(checkpoint)
    count = len(plan.step_multiples)
    if plan.step_tolerance is not None:
        unit_points = count  # a line is refined as a whole
    for label in plan.directions:
        for start in range(0, count, unit_points):
            stop = min(start + unit_points, count)
            key = UnitKey(checkpoint, "line", label, start, stop)
            yield key, partial(_line, key)
    yield from _plane_tasks(plan, checkpoint, whole)
    for name in plan.provenance.get("site_measures", ()):
        yield UnitKey(checkpoint, "measure", name), partial(_measure, checkpoint, name)


def _plane_tasks(plan: Plan, checkpoint: int, unit_points: int) -> Iterator[Task]:
    if plan.plane is None or checkpoint not in plan.plane_checkpoints:
        return
    count = plan.plane.points
    whole = whole_chunks(PLANE_POINTS, unit_points)
    for start in range(0, count, whole):
        key = UnitKey(checkpoint, "plane", "loss", start, min(start + whole, count))
        yield key, partial(_plane, key)
    if checkpoint == len(plan.checkpoints) - 1:
        key = UnitKey(checkpoint, "plane", "trajectory")
        yield key, lambda worker: worker.trajectory(checkpoint)


def _plane(key: UnitKey, worker: Worker) -> UnitResult:
    return worker.plane(key.checkpoint, key.start, key.stop)


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

    A checkpoint that cannot be opened yields one failure; the others go on. The strategy is
    chosen at the first checkpoint that can be opened, or is the one that was chosen before.
    """
    choices = sorted((key.start, key) for key in finished if key.kind == "choice")
    if choices:
        revision, key = choices[-1]
        worker.steering.adopt(Choice(key.name, key.stop), revision)
    first_chunk = choices[0][1].stop if choices else None
    for checkpoint, planned in enumerate(plan.checkpoints):
        if worker.steering.choice is None and _opens(worker, checkpoint):
            unit = worker.choose(checkpoint)
            first_chunk = unit.key.stop
            yield unit
        remaining = []
        for key, measure in tasks(plan, checkpoint, whole_chunks(unit_points, first_chunk or 1)):
            if key in finished:
                progress.advance(key.stop - key.start, planned.label)
            else:
                remaining.append((key, measure))
        yield from _run_checkpoint(worker, remaining, planned.label, progress)
    worker.close()


def _opens(worker: Worker, checkpoint: int) -> bool:
    """Whether a checkpoint can be opened; what is in the way is reported where it is measured."""
    try:
        worker.site(checkpoint)
    except LandscapeError:
        return False
    return True


def whole_chunks(unit_points: int, chunk: int) -> int:
    """Return the number of points of a unit: whole chunks, and no fewer points than asked for.

    Example:
        >>> whole_chunks(8, 3)
        9
    """
    return -(-unit_points // chunk) * chunk


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
        revision = worker.steering.take_revision()
        if revision is not None:
            yield revision
