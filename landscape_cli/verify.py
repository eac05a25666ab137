"""Random points of a run, measured again: whether they agree, and what else is not as it was."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from landscape_cli import store
from landscape_cli.engine.choice import Choice, find_strategy
from landscape_cli.engine.conditions import Conditions
from landscape_cli.engine.strategy import COLUMNS
from landscape_cli.engine.worker import Worker
from landscape_cli.errors import SpecError, StoreError
from landscape_cli.plan import Plan, device_kinds
from landscape_cli.points import point_arrays
from landscape_cli.probing import Preparation, Request
from landscape_cli.progress import Progress, Silent
from landscape_cli.runs import MEASURED, Run
from landscape_cli.specs import ComponentSpec, ProbeSpec
from landscape_cli.threads import limited

QUANTITIES = ("loss", "gradient_change", "distance")
"""What is held against the record at every point; the rest follows from these."""

RELATIVE = {"float64": 1e-8, "float32": 1e-4, "bfloat16": 1e-2}
"""Of the recorded value, by the type that was computed in: what the order of sums may change."""

LIVE = "(live "
AS_IT_STANDS = "(the model as it stands)"


@dataclass(frozen=True)
class Reading:
    """One number, as it is recorded and as it was measured again.

    Attributes:
        checkpoint: label.
        direction: label.
        step_multiple: multiple of the step size.
        quantity: ``loss``, ``gradient_change`` or ``distance``.
        recorded: what the file says.
        measured: what was measured now.
        tolerance: by how much they may differ.
    """

    checkpoint: str
    direction: str
    step_multiple: float
    quantity: str
    recorded: float
    measured: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether the two are as close as they should be; what is not finite must be the same."""
        if math.isfinite(self.recorded) and math.isfinite(self.measured):
            return abs(self.recorded - self.measured) <= self.tolerance
        return self.recorded == self.measured or (
            math.isnan(self.recorded) and math.isnan(self.measured)
        )


@dataclass(frozen=True)
class Difference:
    """Something besides the numbers that is not as it was: ``torch``, ``device``, a hash."""

    what: str
    recorded: str
    present: str


@dataclass(frozen=True)
class Verification:
    """What came of measuring points of a run again.

    Attributes:
        source: the file.
        readings: every number that was measured again.
        differences: checkpoint, data, sample indices, versions or device that are not the same.
        relative: tolerance relative to the recorded value; the noise floor is added to it.
    """

    source: str
    readings: tuple[Reading, ...]
    differences: tuple[Difference, ...]
    relative: float

    @property
    def agrees(self) -> bool:
        """Whether every number agrees."""
        return all(reading.agrees for reading in self.readings)

    @property
    def disagreeing(self) -> tuple[Reading, ...]:
        """The numbers that do not agree."""
        return tuple(reading for reading in self.readings if not reading.agrees)

    @property
    def points(self) -> int:
        """How many points were measured again."""
        return len(self.readings) // len(QUANTITIES)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, for JSON."""
        return {
            "source": self.source,
            "agrees": self.agrees,
            "points": self.points,
            "relative_tolerance": self.relative,
            "differences": [asdict(difference) for difference in self.differences],
            "readings": [{**asdict(r), "agrees": r.agrees} for r in self.readings],
        }


def verify(
    path: str | Path,
    *,
    points: int = 8,
    seed: int = 0,
    named: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Measure random points of a run again, from its recorded settings, and compare.

    Strategy, chunk and number of threads are those of the run. A loss may differ from the record
    by rtol·max(|L|, |L(θ₀)|) + ν·‖θ − θ₀‖ and a gradient change by rtol·‖Δg‖ + ν, where ν is the
    recorded noise floor and rtol is 1e-8 in float64, 1e-4 in float32 and 1e-2 in bfloat16; a
    distance by rtol of itself. Paths in the settings are those of the run: from the same folder.

    Args:
        path: of the file that `landscape probe` wrote, complete or partial.
        points: how many to measure again; all of them if there are fewer.
        seed: decides which.
        named: ``model``, ``data`` or ``loss`` to take instead of those that the run names. A
            FILE.py that only the run names is executed where it lies below the folder of the
            run or the present one, and nowhere else.
        progress: is told how far it is.

    Raises:
        StoreError: If the file cannot be read, or has no measured point.
        SpecError: If model or data were objects in a program, the run names code elsewhere, or
            `points` is not positive.
        CheckpointError, AdapterError: If what was measured cannot be opened any more.
    """
    if points < 1:
        raise SpecError("the number of points is not positive", seen=points, hint="--points 8")
    run = store.open_run(path)
    spec = _recorded_spec(run, Path(path), named or {})
    chosen = _draw_points(run, points, seed, path)
    progress = progress or Silent()
    progress.start(len(chosen))
    with ExitStack() as stack:
        prepared = stack.enter_context(Preparation(Request(spec, None, None)))
        again = _Again(run, prepared)
        differences = tuple(again.differences(sorted({place[0] for place in chosen})))
        stack.enter_context(limited(again.conditions.threads))
        worker = stack.enter_context(Worker(again.plan, prepared.equipment))
        worker.keep_to(again.conditions)
        worker.steering.adopt(again.choice)
        readings: list[Reading] = []
        for place in chosen:
            readings.extend(again.read(worker, place))
            progress.advance(1, readings[-1].checkpoint)
    return Verification(str(path), tuple(readings), differences, again.relative)


def _recorded_spec(run: Run, path: Path, named: Mapping[str, str]) -> ProbeSpec:
    """Return the settings of a run, to be measured here and without its further measures."""
    settings = {**run.settings, **{name: text for name, text in named.items() if text}}
    live = [name for name in ("model", "data") if str(settings.get(name)).startswith(LIVE)]
    if live or AS_IT_STANDS in (settings.get("checkpoints") or ()):
        raise SpecError(
            "the run cannot be measured again: it was made from objects in a program",
            seen=", ".join(f"{name} {settings.get(name)}" for name in live) or AS_IT_STANDS,
            hint="probe with specs: FILE.py:FACTORY or ADAPTER:TARGET",
        )
    try:
        spec = ProbeSpec.from_mapping(settings)
    except SpecError as error:
        raise StoreError(
            "the settings of the run cannot be used", seen=f"{path}: {error.what}", hint=error.hint
        ) from error
    for name in ("model", "data", "loss"):
        if not named.get(name):
            _check_code(name, getattr(spec, name), path)
    return replace(spec.here(), measures=(), plane=None)


def _check_code(name: str, text: str, path: Path) -> None:
    """Check that code which only the run names lies where the user works."""
    if name == "loss":
        file = text.rpartition(":")[0] if ".py:" in text else ""
    else:
        component = ComponentSpec.parse(text, name)
        file = component.target.rpartition(":")[0] if component.adapter == "file" else ""
    homes = (Path.cwd(), path.resolve().parent)
    if file and not any(Path(file).resolve().is_relative_to(home) for home in homes):
        raise SpecError(
            f"the run names a {name} of somebody's own, in another folder",
            seen=text,
            hint=f"if you trust that code: --{name} {text}",
        )


def _draw_points(run: Run, points: int, seed: int, path: str | Path) -> list[tuple[int, int, int]]:
    """Return random measured points as (checkpoint, direction, step), in the order of the file."""
    measured = np.argwhere(run["status"] >= MEASURED)
    if not len(measured):
        raise StoreError(
            "the run has no measured point", seen=path, hint="landscape probe … --resume"
        )
    generator = np.random.default_rng(seed)
    drawn = generator.choice(len(measured), size=min(points, len(measured)), replace=False)
    return [(int(c), int(d), int(s)) for c, d, s in measured[np.sort(drawn)]]


class _Again:
    """A run, and the means to measure it again."""

    def __init__(self, run: Run, prepared: Preparation) -> None:
        self.run = run
        self.present = prepared.plan
        spec = prepared.spec
        self.relative = RELATIVE[spec.dtype]
        threads, layout = run.attributes.get("threads", 0), run.attributes.get("layout", "")
        self.conditions = Conditions(int(threads) or 1, str(layout))
        strategy = str(run.attributes.get("strategy", "plain"))
        find_strategy(strategy)
        self.choice = Choice(strategy, max(1, int(run.attributes.get("chunk", 1))))
        self.plan = self._plan()

    def _plan(self) -> Plan:
        """Return the present plan, with the step axis of the file; refined lines are given."""
        multiples = tuple(float(multiple) for multiple in self.run["step_multiple"])
        grid = f"{min(multiples):g}:{max(multiples):g}:{len(multiples)}:lin"
        settings = {**self.present.settings, "steps": grid}
        return replace(self.present, settings=settings, step_multiples=multiples)

    def position(self, checkpoint: int) -> int:
        """Return where a checkpoint of the file is in the present plan.

        Raises:
            StoreError: If it is not there any more.
        """
        label = self.run.labels("checkpoint")[checkpoint]
        labels = [planned.label for planned in self.present.checkpoints]
        if label in labels[checkpoint : checkpoint + 1]:
            return checkpoint
        if labels.count(label) != 1:
            raise StoreError(
                "a checkpoint of the run is not there any more",
                seen=f"{label}; {len(labels)} found: {', '.join(labels[:3])}",
                hint="restore it, or start from the folder that the run was started from",
            )
        return labels.index(label)

    def differences(self, checkpoints: list[int]) -> Iterator[Difference]:
        """Yield what is not as it was when the run was measured."""
        for index in checkpoints:
            recorded = self.run.labels("checkpoint_sha256")[index]
            present = self.present.checkpoints[self.position(index)].sha256
            if recorded != present:
                label = self.run.labels("checkpoint")[index]
                yield Difference(f"checkpoint {label}", recorded, present)
        names = {"data_sha256": "data", "sample_indices_sha256": "sample indices"}
        for name, what in {**names, "device": "device"}.items():
            recorded = str(self.run.attributes.get(name, ""))
            present = str(self.present.provenance[name])
            if recorded != present and not _is_same_kind(what, recorded, present):
                yield Difference(what, recorded, present)
        yield from self._versions()

    def _versions(self) -> Iterator[Difference]:
        recorded = _read_mapping(self.run.attributes.get("versions", "{}"))
        for name, present in self.present.provenance["versions"].items():
            if str(recorded.get(name, "unknown")) != present:
                yield Difference(name, str(recorded.get(name, "unknown")), present)

    def read(self, worker: Worker, place: tuple[int, int, int]) -> Iterator[Reading]:
        """Measure the chunk of a point again, and yield the readings of the point."""
        checkpoint, direction, step = place
        label = self.run.labels("direction")[direction]
        start = step // self.choice.chunk * self.choice.chunk
        stop = min(start + self.choice.chunk, len(self.plan.step_multiples))
        position = self.position(checkpoint)
        unit = worker.line(position, label, start, stop)
        norm = worker.site(position).gradient_norm
        nothing = np.full((stop - start, len(COLUMNS)), np.nan)
        points = point_arrays(unit.arrays.get("columns", nothing), norm)
        for quantity in QUANTITIES:
            yield Reading(
                self.run.labels("checkpoint")[checkpoint],
                label,
                self.plan.step_multiples[step],
                quantity,
                recorded=float(self.run[quantity][place]),
                measured=float(points[quantity][step - start]),
                tolerance=self._tolerance(quantity, place),
            )

    def _tolerance(self, quantity: str, place: tuple[int, int, int]) -> float:
        recorded = abs(float(self.run[quantity][place]))
        floor = float(self.run["noise_floor"][place[0]])
        floor = floor if math.isfinite(floor) else 0.0
        if quantity == "distance":
            return self.relative * recorded
        if quantity == "gradient_change":
            return self.relative * recorded + floor
        base = float(self.run["base_loss"][place[0]])
        scale = max(recorded, abs(base) if math.isfinite(base) else 0.0)
        moved = float(self.run["distance"][place])
        return self.relative * scale + floor * (moved if math.isfinite(moved) else 0.0)


def _is_same_kind(what: str, recorded: str, present: str) -> bool:
    """Whether a device is another one of those that the run was measured on."""
    return what == "device" and device_kinds(present) <= device_kinds(recorded)


def _read_mapping(text: object) -> Mapping[str, Any]:
    try:
        found = json.loads(str(text))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
