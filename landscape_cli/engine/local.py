"""The local engine: every unit of a plan, in this process, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from landscape_cli.engine.tasks import attempt, keys_of, obstacle, recorded_choices, whole_chunks
from landscape_cli.engine.worker import Worker, failure
from landscape_cli.plan import Plan
from landscape_cli.progress import Progress
from landscape_cli.units import UnitKey, UnitResult


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
    choices = recorded_choices(finished)
    if choices:
        worker.steering.adopt(*choices[-1])
    first_chunk = choices[0][0].chunk if choices else None
    for checkpoint, planned in enumerate(plan.checkpoints):
        if worker.steering.choice is None and obstacle(worker, checkpoint) is None:
            unit = worker.choose(checkpoint)
            first_chunk = unit.key.stop
            yield unit
        remaining = []
        for key in keys_of(plan, checkpoint, whole_chunks(unit_points, first_chunk or 1)):
            if key in finished:
                progress.advance(key.stop - key.start, planned.label)
            else:
                remaining.append(key)
        yield from _run_checkpoint(worker, remaining, planned.label, progress)
    worker.close()


def _run_checkpoint(
    worker: Worker, remaining: list[UnitKey], label: str, progress: Progress
) -> Iterator[UnitResult]:
    if not remaining:
        return
    error = obstacle(worker, remaining[0].checkpoint)
    if error is not None:
        progress.notice(f"{label}: {error.what}")
        progress.advance(sum(key.stop - key.start for key in remaining), label)
        yield failure(UnitKey(remaining[0].checkpoint, "failure"), error)
        return
    for key in remaining:
        where = f"{label} {key.name}".strip()
        unit = attempt(worker, key)
        if unit.error:
            progress.notice(f"{where}: {unit.error}")
        progress.advance(key.stop - key.start, where)
        yield unit
        revision = worker.steering.take_revision()
        if revision is not None:
            yield revision
