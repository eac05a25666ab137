"""One process's share of a run: the model, the data, and the checkpoint that is open now."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import nn

from landscape_cli import batches, losses, prefetch
from landscape_cli.engine import micro_batches
from landscape_cli.engine.adaptive import refine
from landscape_cli.engine.choice import Choice, Request, choose
from landscape_cli.engine.conditions import Conditions
from landscape_cli.engine.headings import Headings
from landscape_cli.engine.layout import laid_out, layouts, with_channels_last
from landscape_cli.engine.limit import limit
from landscape_cli.engine.memory import available_bytes, recycled
from landscape_cli.engine.steering import Steering
from landscape_cli.engine.strategy import Line, Plane, Slice
from landscape_cli.errors import CheckpointError, LandscapeError, MeasurementError
from landscape_cli.measures.contract import SiteMeasure, SweepMeasure
from landscape_cli.objective import Objective
from landscape_cli.parameters import Tensors
from landscape_cli.plan import Plan
from landscape_cli.site import Site, noise_floor
from landscape_cli.specs import ProbeSpec
from landscape_cli.threads import limited, seconds, settle
from landscape_cli.units import UnitKey, UnitResult

WORTH_POINTS = 100
"""Points of a run that is long enough to try in which layout it is fastest, as that takes ten."""
LAYOUT_ADVANTAGE = 0.93
"""Another layout must take at most this share of the time of the likelier one."""


@dataclass
class Equipment:
    """What a worker measures with.

    Attributes:
        spec: the run's settings.
        model: on its device and in its type; its weights are replaced by each checkpoint's.
        sample: the raw batches.
        measures: the measures beyond the basic three, by name.
        load: puts a checkpoint's weights into a model and returns remarks.
        live: whether the model is somebody else's, who may hold views of its memory.
    """

    spec: ProbeSpec
    model: nn.Module
    sample: batches.Sample
    measures: Mapping[str, SiteMeasure | SweepMeasure] = field(default_factory=dict)
    load: Callable[[nn.Module, Path], Iterable[str]] | None = None
    live: bool = True


class Worker:
    """Measures the units of a plan, one at a time; opens one checkpoint at a time.

    Use as a context manager: on leaving, the model's mode, buffers and parameters are those of
    the last opened checkpoint, and the random state is the caller's.
    """

    def __init__(self, plan: Plan, equipment: Equipment) -> None:
        self.plan = plan
        self.equipment = equipment
        self.steering = Steering()
        self._headings: Headings | None = None
        self._position = -1
        self._site: Site | None = None
        self._stack = ExitStack()
        self._life = ExitStack()
        self._staged: tuple[bool, Sequence[batches.Batch]] | None = None
        self._threads = torch.get_num_threads()
        self._layout: str = next(iter(layouts(equipment.model)), "")

    def __enter__(self) -> Worker:
        self._life.enter_context(recycled(self.equipment.model.parameters()))
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
        self._life.close()

    def close(self) -> None:
        """Close the checkpoint that is open."""
        self.steering.forget()
        self._site, self._headings, self._position = None, None, -1
        self._stack.close()

    @cached_property
    def _loss(self) -> losses.Loss:
        return losses.resolve(self.equipment.spec.loss, self.equipment.model)

    @cached_property
    def _batches(self) -> tuple[batches.Batch, ...]:
        model, sample = self.equipment.model, self.equipment.sample
        parameter = next(model.parameters())
        free = available_bytes(parameter.device)
        fitting = prefetch.fit(sample.batches, parameter.dtype, free)
        placed = batches.prepare(
            sample,
            model,
            device=parameter.device if fitting else torch.device("cpu"),
            dtype=parameter.dtype,
            whole=self._loss.whole,
        )
        size = self.equipment.spec.micro_batch
        if size is None:
            return tuple(placed)
        whole, mode = self._loss.whole, self.equipment.spec.norm_mode
        return micro_batches.split(list(placed), size, model, whole=whole, norm_mode=mode)

    def _laid_out(self) -> Sequence[batches.Batch]:
        """Return the batches, images in the order of memory that the weights are in."""
        if self._staged is None or self._staged[0] != self._last:
            self._staged = None  # before others take its memory
            self._staged = self._last, self._stage()
        return self._staged[1]

    def _stage(self) -> Sequence[batches.Batch]:
        model, whole = self.equipment.model, self._loss.whole
        placed = self._batches
        if self._last:
            raws = (batches.map_tensors(batch.raw, with_channels_last) for batch in placed)
            placed = tuple(batches.Batch.split(raw, model, whole=whole) for raw in raws)
        device = next(model.parameters()).device
        return prefetch.staged(placed, model, device, whole=whole)

    @property
    def _last(self) -> bool:
        """Whether images have their channels last."""
        return self._layout not in ("", "contiguous")

    def site(self, checkpoint: int) -> Site:
        """Return the site of a checkpoint, opening it if another is open."""
        if self._site is None or self._position != checkpoint:
            self.close()
            self._site = self._open(checkpoint)
            self._headings = self._head(checkpoint, self._site)
            self._position = checkpoint
        return self._site

    @property
    def headings(self) -> Headings:
        """The directions of the checkpoint that is open."""
        assert self._headings is not None
        return self._headings

    def _head(self, checkpoint: int, site: Site) -> Headings:
        paths = [Path(planned.path) for planned in self.plan.checkpoints]
        return Headings(site, trajectory=paths, position=checkpoint, changed=self.steering.forget)

    def _open(self, checkpoint: int) -> Site:
        planned, spec = self.plan.checkpoints[checkpoint], self.equipment.spec
        remarks = list(self._load(checkpoint))
        objective = self._open_objective()
        if not objective.resident:
            remarks.append("the batches do not fit on the device: each is copied ahead of its use")
        if spec.micro_batch is not None:
            micro_batches.check_independence(objective)
        site = Site.survey(
            objective,
            label=planned.label,
            learning_rate=np.nan if planned.learning_rate is None else planned.learning_rate,
            seed=spec.seed,
            step_multiples=self.plan.step_multiples,
            threads=self._threads,
        )
        site.notices[:0] = remarks
        return site

    def _open_objective(self) -> Objective:
        """Open the objective in the run's layout, or contiguous if the model takes no other."""
        equipment = self.equipment
        layout = laid_out(equipment.model, self._layout, keep=equipment.live)
        self._stack.enter_context(layout)
        objective = Objective(
            equipment.model,
            self._laid_out(),
            self._loss,
            norm_mode=equipment.spec.norm_mode,
            seed=equipment.spec.seed,
        )
        try:
            return self._stack.enter_context(objective)
        except MeasurementError:
            if not self._last:
                raise
            # A forward pass with .view() after a convolution takes contiguous features only.
            self._layout = "contiguous"
            self._stack.close()
            return self._open_objective()

    def _load(self, checkpoint: int) -> Iterable[str]:
        load = self.equipment.load
        path = self.plan.checkpoints[checkpoint].path
        return load(self.equipment.model, Path(path)) if load and path else ()

    def settle(self) -> Conditions:
        """Settle what the run computes under, by timing its first checkpoint, and keep to it.

        What was opened for it is closed: everything that is kept is computed under them.
        """
        for checkpoint in range(len(self.plan.checkpoints)):
            try:
                evaluate = self._evaluation(checkpoint)
            except (LandscapeError, RuntimeError):
                continue  # what is in the way is reported where the checkpoint is measured
            threads = settle(evaluate)
            del evaluate
            with limited(threads):
                self._settle_layout(checkpoint)
            self.close()
            return Conditions(threads, self._layout)
        return Conditions(1)

    def keep_to(self, conditions: Conditions) -> None:
        """Compute under the conditions of a run; the threads are for the caller to set."""
        if conditions.layout and conditions.layout != self._layout:
            self.close()
            self._layout = conditions.layout

    def _evaluation(self, checkpoint: int) -> Callable[[], object]:
        site = self.site(checkpoint)
        device = site.parameters.device

        def evaluate() -> None:
            site.objective.value_and_change(site.gradient)
            if device.type == "cuda":
                torch.cuda.synchronize(device)

        return evaluate

    def _settle_layout(self, checkpoint: int) -> None:
        """Let images lie in memory as the checkpoint is evaluated faster, where that is open.

        A run whose strategy is given is to repeat bit for bit, and nothing is left to the clock.
        """
        likely, *others = layouts(self.equipment.model) or ("",)
        forced = self.equipment.spec.strategy != "auto"
        if forced or not others or self.plan.points < WORTH_POINTS or self._layout != likely:
            return
        fastest, least = likely, seconds(self._evaluation(checkpoint))
        for other in others:
            self.keep_to(Conditions(0, other))
            taken = seconds(self._evaluation(checkpoint))
            if taken < LAYOUT_ADVANTAGE * least:
                fastest, least = other, taken
        self.keep_to(Conditions(0, fastest))

    def base(self, checkpoint: int) -> UnitResult:
        """Measure L(θ₀), ‖g‖ and the noise floor."""
        site = self.site(checkpoint)
        arrays = {
            "base_loss": np.array(site.base_loss),
            "gradient_norm": np.array(site.gradient_norm),
            "noise_floor": np.array(noise_floor(site)),
        }
        return UnitResult(UnitKey(checkpoint, "base"), arrays, tuple(site.notices))

    def line(self, checkpoint: int, label: str, start: int, stop: int) -> UnitResult:
        """Measure the points start ≤ k < stop along a direction."""
        key = UnitKey(checkpoint, "line", label, start, stop)
        site = self.site(checkpoint)
        if label not in self.plan.unscaled and math.isnan(site.learning_rate):
            raise CheckpointError(
                "the checkpoint does not say its learning rate",
                seen=site.label,
                hint="--lr X, the training step size that step multiples are multiples of",
            )
        direction = self.headings.direction(label)
        if direction is None:
            return UnitResult(key, notices=(f"no checkpoint follows {site.label} to step towards",))
        if self.plan.step_tolerance is None:
            sizes = self.plan.step_sizes(checkpoint, label)[start:stop]
            columns, rows = self._evaluate(label, direction, sizes)
            arrays = {"columns": columns}
        else:
            arrays, rows = self._refine(label, direction, self.plan.step_tolerance)
        told = list(self.steering.take_told())
        if start == 0:
            arrays["limit"] = np.array(limit(site, direction, told))
        for name in dict.fromkeys(path.split("/", 1)[0] for path in rows):
            arrays.update(self._summary(name, rows))
        return UnitResult(key, arrays, tuple(told))

    def _refine(
        self, label: str, direction: Tensors, tolerance: float
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Measure a line where it matters; its multiples are part of what is measured."""
        site, start = self.site(self._position), np.asarray(self.plan.step_multiples)
        factor = self.plan.step_factor(self._position, label)
        line = refine(
            lambda multiples: self._evaluate(label, direction, multiples * factor),
            start,
            tolerance,
            site.gradient_norm,
        )
        if not line.settled:
            self.steering.told.append(f"{label}: not settled after {len(line.multiples)} points")
        arrays = {"columns": line.columns, "multiples": line.multiples, "added": line.added}
        return arrays, line.rows

    def _evaluate(
        self, label: str, direction: Tensors, sizes: np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        checkpoint, site = self._position, self.site(self._position)
        measures = self._sweep_measures(site)
        observers = {name: measure.observer(site) for name, measure in measures.items()}
        line = Line(label, direction, observers=observers)
        # Observers belong to one unit: what they watch is prepared for it alone.
        identity = object() if observers else (checkpoint, label)
        sweep = self.steering.sweep(identity, site, line)
        evaluated = sweep.evaluate(sizes)
        self.steering.revise()
        return evaluated

    def plane(self, checkpoint: int, start: int, stop: int) -> UnitResult:
        """Measure the losses at the points start ≤ k < stop of the plane, row by row."""
        site, plane = self.site(checkpoint), self.plan.plane
        assert plane is not None
        slice_ = Plane("plane", self.headings.axes(plane.axes))
        sweep = self.steering.sweep((checkpoint, "plane"), site, slice_)
        columns, _ = sweep.evaluate(self.plan.plane_sizes(checkpoint)[start:stop])
        self.steering.revise()
        key = UnitKey(checkpoint, "plane", "loss", start, stop)
        return UnitResult(key, {"loss": columns[:, 0].copy()}, self.steering.take_told())

    def trajectory(self, checkpoint: int) -> UnitResult:
        """Find where the checkpoints lie on the plane around this one."""
        site, plan = self.site(checkpoint), self.plan
        assert plan.plane is not None
        places = self.headings.trajectory(plan.plane.axes).numpy()
        rate = site.learning_rate
        multiples = places / [rate if scaled else 1.0 for scaled in plan.plane.scaled()]
        key = UnitKey(checkpoint, "plane", "trajectory")
        return UnitResult(key, {"x": multiples[:, 0].copy(), "y": multiples[:, 1].copy()})

    def choose(self, checkpoint: int) -> UnitResult:
        """Choose strategy and chunk for the run, at a checkpoint, along its first direction.

        Raises:
            MeasurementError: If a strategy was asked for that cannot serve here.
        """
        spec, plan, site = self.equipment.spec, self.plan, self.site(checkpoint)
        if self._sweep_measures(site):
            return self.steering.adopt(Choice("plain"))
        example = self.example(checkpoint)
        if example is None:
            return self.steering.adopt(Choice("plain"))
        slice_, sizes = example
        request = Request(spec.strategy, spec.chunk, plan.points, len(sizes), sizes)
        return self.steering.adopt(choose(site, slice_, request))

    def example(self, checkpoint: int) -> tuple[Slice, np.ndarray] | None:
        """Return what most points of the run are like: a slice that can be made, and its points."""
        plan = self.plan
        if plan.plane is not None and 2 * plan.plane.points > plan.points // len(plan.checkpoints):
            try:
                axes = self.headings.axes(plan.plane.axes)
                return Plane("plane", axes), plan.plane_sizes(checkpoint)
            except LandscapeError:
                pass  # the units of the plane will say so
        for label in plan.directions:
            try:
                direction = self.headings.direction(label)
            except LandscapeError:
                continue  # the units of that direction will say so
            if direction is not None:
                return Line(label, direction), plan.step_sizes(checkpoint, label)
        return None

    def _sweep_measures(self, site: Site) -> dict[str, SweepMeasure]:
        return {
            name: measure
            for name, measure in self.equipment.measures.items()
            if isinstance(measure, SweepMeasure) and not measure.refusal(site)
        }

    def _summary(self, name: str, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        measure = self.equipment.measures[name]
        own = {path.split("/", 1)[1]: v for path, v in rows.items() if path.startswith(f"{name}/")}
        if not isinstance(measure, SweepMeasure) or not own:
            return {}
        return {f"{name}/{key}": np.asarray(v) for key, v in measure.summarise(own).items()}

    def measure(self, checkpoint: int, name: str) -> UnitResult:
        """Take a site measure, or say why it does not apply."""
        key = UnitKey(checkpoint, "measure", name)
        site = self.site(checkpoint)
        measure = self.equipment.measures[name]
        refusal = measure.refusal(site)
        if refusal or not isinstance(measure, SiteMeasure):
            return UnitResult(key, notices=(f"{name}: {refusal}",) if refusal else ())
        before = len(site.notices)
        try:
            arrays = {field: np.asarray(value) for field, value in measure.measure(site).items()}
        finally:
            site.parameters.restore()
        return UnitResult(key, arrays, tuple(site.notices[before:]))


def failure(key: UnitKey, error: LandscapeError) -> UnitResult:
    """Return the unit that records why another could not be measured."""
    text = f"{error.what}: {error.seen}" if error.seen else error.what
    return UnitResult(key, notices=(error.hint,) if error.hint else (), error=text)


def describe(error: Exception) -> LandscapeError:
    """Return an error of somebody else's code as one of ours."""
    if isinstance(error, LandscapeError):
        return error
    return MeasurementError(
        "a measurement raised an error",
        seen=f"{type(error).__name__}: {error}".splitlines()[0],
        hint="--debug shows where",
    )
