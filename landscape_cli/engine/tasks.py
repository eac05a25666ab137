"""The units of a run in their order, and how a worker measures any one of them by its key."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from landscape_cli.engine.choice import Choice
from landscape_cli.engine.worker import Worker, describe, failure
from landscape_cli.errors import LandscapeError
from landscape_cli.plan import Plan
from landscape_cli.units import UnitKey, UnitResult

UNIT_POINTS = 8
"""Points of a line that are measured and journalled together where nothing else decides."""

CHUNKS = 4
"""Chunks of a unit, where the points of a chunk are evaluated together."""

PLANE_POINTS = 32
"""The same for the points of a plane, which have no gradient."""


def keys_of(plan: Plan, checkpoint: int, unit_points: int) -> Iterator[UnitKey]:
    """Yield the units of one checkpoint in their order."""
    yield UnitKey(checkpoint, "base")
    count = len(plan.step_multiples)
    # A line that is refined is one unit.
    points = unit_points if plan.step_tolerance is None else count
    for label in plan.directions:
        for start in range(0, count, points):
            yield UnitKey(checkpoint, "line", label, start, min(start + points, count))
    yield from _plane_keys(plan, checkpoint, unit_points)
    for name in plan.provenance.get("site_measures", ()):
        yield UnitKey(checkpoint, "measure", name)


def _plane_keys(plan: Plan, checkpoint: int, unit_points: int) -> Iterator[UnitKey]:
    if plan.plane is None or checkpoint not in plan.plane_checkpoints:
        return
    count = plan.plane.points
    whole = whole_chunks(PLANE_POINTS, unit_points)
    for start in range(0, count, whole):
        yield UnitKey(checkpoint, "plane", "loss", start, min(start + whole, count))
    if checkpoint == len(plan.checkpoints) - 1:
        yield UnitKey(checkpoint, "plane", "trajectory")


def whole_chunks(unit_points: int, chunk: int) -> int:
    """Return the number of points of a unit: whole chunks, and no fewer points than asked for.

    Where points are evaluated together there are several chunks, as they may go side by side.

    Example:
        >>> whole_chunks(8, 1), whole_chunks(8, 3), whole_chunks(20, 3)
        (8, 12, 21)
    """
    several = CHUNKS * chunk if chunk > 1 else 1
    return -(-max(unit_points, several) // chunk) * chunk


def obstacle(worker: Worker, checkpoint: int) -> LandscapeError | None:
    """Open a checkpoint and return what is in the way, None if nothing is."""
    try:
        worker.site(checkpoint)
    except Exception as error:  # noqa: BLE001  a model may raise anything
        return describe(error)
    return None


def attempt(worker: Worker, key: UnitKey) -> UnitResult:
    """Measure a unit, or return the record of why it could not be measured."""
    try:
        return _measure(worker, key)
    except Exception as error:  # noqa: BLE001  a measure or a model may raise anything
        return failure(key, describe(error))


def _measure(worker: Worker, key: UnitKey) -> UnitResult:
    if key.kind == "base":
        return worker.base(key.checkpoint)
    if key.kind == "line":
        return worker.line(key.checkpoint, key.name, key.start, key.stop)
    if key.kind == "measure":
        return worker.measure(key.checkpoint, key.name)
    if key.name == "trajectory":
        return worker.trajectory(key.checkpoint)
    return worker.plane(key.checkpoint, key.start, key.stop)


def recorded_choices(finished: Collection[UnitKey]) -> list[tuple[Choice, int]]:
    """Return the choices of strategy and chunk among finished units, with their revisions."""
    choices = sorted((key.start, key) for key in finished if key.kind == "choice")
    return [(Choice(key.name, key.stop), revision) for revision, key in choices]
