"""One process's share of a run: the model, the data, and the checkpoint that is open now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from landscape_cli import batches, checkpoints, directions, losses
from landscape_cli.engine.plain import Plain
from landscape_cli.engine.strategy import Line, Strategy
from landscape_cli.errors import LandscapeError, MeasurementError
from landscape_cli.measures.contract import SiteMeasure, SweepMeasure
from landscape_cli.objective import Objective
from landscape_cli.parameters import norm, squared_difference
from landscape_cli.plan import Plan
from landscape_cli.site import Site, noise_floor
from landscape_cli.specs import DirectionSpec, ProbeSpec
from landscape_cli.units import UnitKey, UnitResult


@dataclass
class Equipment:
    """What a worker measures with.

    Attributes:
        spec: the run's settings.
        model: on its device and in its type; its weights are replaced by each checkpoint's.
        sample: the raw batches.
        measures: the measures beyond the basic three, by name.
        load: puts a checkpoint's weights into a model and returns remarks.
    """

    spec: ProbeSpec
    model: nn.Module
    sample: batches.Sample
    measures: Mapping[str, SiteMeasure | SweepMeasure] = field(default_factory=dict)
    load: Callable[[nn.Module, Path], Iterable[str]] | None = None


class Worker:
    """Measures the units of a plan, one at a time; opens one checkpoint at a time.

    Use as a context manager: on leaving, the model's mode, buffers and parameters are those of
    the last opened checkpoint, and the random state is the caller's.
    """

    def __init__(self, plan: Plan, equipment: Equipment) -> None:
        self.plan = plan
        self.equipment = equipment
        self.strategy: Strategy = Plain()
        self._position = -1
        self._site: Site | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the checkpoint that is open."""
        self._site, self._position = None, -1
        self._stack.close()

    @cached_property
    def _loss(self) -> losses.Loss:
        return losses.resolve(self.equipment.spec.loss, self.equipment.model)

    @cached_property
    def _batches(self) -> tuple[batches.Batch, ...]:
        model = self.equipment.model
        parameter = next(model.parameters())
        placed = batches.prepare(
            self.equipment.sample,
            model,
            device=parameter.device,
            dtype=parameter.dtype,
            whole=self._loss.whole,
        )
        return tuple(placed)

    def site(self, checkpoint: int) -> Site:
        """Return the site of a checkpoint, opening it if another is open."""
        if self._site is None or self._position != checkpoint:
            self.close()
            self._site = self._open(checkpoint)
            self._position = checkpoint
        return self._site

    def _open(self, checkpoint: int) -> Site:
        planned, spec = self.plan.checkpoints[checkpoint], self.equipment.spec
        remarks = list(self._load(checkpoint))
        objective = Objective(
            self.equipment.model,
            self._batches,
            self._loss,
            norm_mode=spec.norm_mode,
            seed=spec.seed,
        )
        self._stack.enter_context(objective)
        site = Site.survey(
            objective,
            label=planned.label,
            learning_rate=np.nan if planned.learning_rate is None else planned.learning_rate,
            seed=spec.seed,
            step_multiples=self.plan.step_multiples,
        )
        site.notices[:0] = remarks
        return site

    def _load(self, checkpoint: int) -> Iterable[str]:
        load = self.equipment.load
        path = self.plan.checkpoints[checkpoint].path
        return load(self.equipment.model, Path(path)) if load and path else ()

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
        direction = self.direction(checkpoint, label)
        if direction is None:
            return UnitResult(key, notices=(f"no checkpoint follows {site.label} to step towards",))
        observers = {
            name: measure.observer(site) for name, measure in self._sweep_measures(site).items()
        }
        line = Line(label, direction, observers=observers)
        sizes = self.plan.step_sizes(checkpoint, label)[start:stop]
        columns, rows = self.strategy.prepare(site, line).evaluate(sizes.tolist())
        arrays: dict[str, np.ndarray] = {"columns": columns}
        notices: list[str] = []
        if start == 0:
            arrays["limit"] = np.array(_limit(site, direction, notices))
        for name in observers:
            arrays.update(self._summary(name, rows))
        return UnitResult(key, arrays, tuple(notices))

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

    def direction(self, checkpoint: int, label: str) -> list[Tensor] | None:
        """Return d for a label, scaled as its kind is; None where there is nothing to go to."""
        site, spec = self.site(checkpoint), DirectionSpec.of_label(label)
        if spec.kind == "gradient":
            return site.gradient
        found = self._raw_direction(checkpoint, spec, label)
        if found is None or not spec.scaled:
            return found
        return directions.scaled_to(found, site.gradient_norm)

    def _raw_direction(
        self, checkpoint: int, spec: DirectionSpec, label: str
    ) -> list[Tensor] | None:
        site = self.site(checkpoint)
        if spec.kind == "random":
            return directions.random(site.parameters, site.seed, int(spec.argument))
        if spec.kind == "random-filter":
            return directions.random_filter(site.parameters, site.seed, int(spec.argument))
        if spec.kind == "file":
            return directions.from_file(site.parameters, Path(spec.argument))
        if spec.kind == "toward":
            return directions.towards(site.parameters, self._weights(Path(spec.argument)))
        if spec.kind == "update":
            if checkpoint + 1 >= len(self.plan.checkpoints):
                return None
            path = Path(self.plan.checkpoints[checkpoint + 1].path)
            return directions.towards(site.parameters, self._weights(path))
        raise MeasurementError("no such direction", seen=label, hint="see landscape probe --help")

    def _weights(self, path: Path) -> list[Tensor]:
        """Return another checkpoint's values of θ."""
        model = self.equipment.model
        matched = checkpoints.match(checkpoints.read(path).tensors, model)
        named = dict(model.named_parameters())
        state = matched.state
        return [
            state[name].to(named[name].dtype) for name in self.site(self._position).parameters.names
        ]


def _limit(site: Site, direction: list[Tensor], notices: list[str]) -> float:
    """Return ‖H d‖ ÷ ‖d‖, by finite differences where the model has no second derivative."""
    try:
        return site.objective.directional_curvature(direction)
    except MeasurementError as error:
        notices.append(f"the limit is a central difference: {error.what} ({error.seen})")
        return _difference_curvature(site, direction)


def _difference_curvature(site: Site, direction: list[Tensor]) -> float:
    """Return ‖∇L(θ₀ + εd) − ∇L(θ₀ − εd)‖ ÷ ‖2εd‖ with ε = eps^⅓ ‖θ₀‖ ÷ ‖d‖."""
    length = norm(direction)
    if not length:
        return float("nan")
    reach = torch.finfo(site.parameters.dtype).eps ** (1 / 3) * max(
        norm(site.parameters.origin), 1.0
    )
    try:
        site.parameters.move(direction, reach / length)
        _, ahead = site.objective.value_and_gradient()
        site.parameters.move(direction, -reach / length)
        _, behind = site.objective.value_and_gradient()
    finally:
        site.parameters.restore()
    return float(squared_difference(ahead, behind).sqrt()) / (2 * reach)


def failure(key: UnitKey, error: LandscapeError) -> UnitResult:
    """Return the unit that records why another could not be measured."""
    text = f"{error.what}: {error.seen}" if error.seen else error.what
    return UnitResult(key, error=text)


def describe(error: Exception) -> LandscapeError:
    """Return an error of somebody else's code as one of ours."""
    if isinstance(error, LandscapeError):
        return error
    return MeasurementError(
        "a measurement raised an error",
        seen=f"{type(error).__name__}: {error}".splitlines()[0],
        hint="--debug shows where",
    )
