"""The probe: measure one checkpoint or a trajectory, and keep what was measured."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from landscape_cli import batches, checkpoints, losses, store
from landscape_cli.checkpoints.contract import UNKNOWN_STEP, CheckpointInfo
from landscape_cli.devices import (
    choose_device,
    choose_devices,
    describe_devices,
    deterministic,
    place_model,
    present,
)
from landscape_cli.engine import local
from landscape_cli.engine.conditions import Conditions
from landscape_cli.engine.tasks import UNIT_POINTS
from landscape_cli.engine.worker import Equipment, Worker
from landscape_cli.errors import CheckpointError, MeasurementError, SpecError
from landscape_cli.ledger import Ledger, check_target, find_complete
from landscape_cli.measures import registered
from landscape_cli.measures.contract import SiteMeasure, SweepMeasure
from landscape_cli.parameters import chosen_parameters
from landscape_cli.plan import Plan, PlannedCheckpoint, command_line, timestamp, versions
from landscape_cli.progress import Progress, Silent
from landscape_cli.runs import Run
from landscape_cli.specs import ProbeSpec
from landscape_cli.threads import limited, shared
from landscape_cli.units import UnitKey, UnitResult

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.utils.data import Dataset

    from landscape_cli.engine.crew import Crew, Transport


def probe(
    checkpoints: str | Path | Sequence[str | Path] = (),
    *,
    model: str | nn.Module,
    data: str | Dataset[Any] | Iterable[Any],
    output: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> Run:
    """Measure the landscape around checkpoints, or around a model as it stands.

    Args:
        checkpoints: files, folders or globs; several, or a folder of them, are a trajectory.
            None of them: the present weights of `model` are probed.
        model: a spec such as ``sample:vgg?norm=batch``, or a module.
        data: a spec such as ``sklearn:digits``, a `Dataset`, or an iterable of batches.
        output: the HDF5 file to write; None keeps the run in memory.
        resume: go on with an unfinished `output`; with none there, start.
        overwrite: replace `output`.
        progress: is told how far the run is.
        **settings: the other fields of `ProbeSpec`: ``lr``, ``steps``, ``directions``, …

    Returns:
        The run. A module that was passed in is bit for bit what it was.

    Raises:
        SpecError: If a setting cannot be meant, or `output` exists.
        AdapterError: If model or data cannot be built.
        CheckpointError: If no checkpoint can be read, or none fits.
        MeasurementError: If nothing could be measured, or `model` or the batches are objects that
            cannot be sent to the other processes that `device` or `workers` asks for.

    Examples:
        >>> import torch, landscape_cli as landscape
        >>> model = torch.nn.Linear(3, 1)
        >>> data = torch.utils.data.TensorDataset(torch.randn(8, 3), torch.randn(8, 1))
        >>> run = landscape.probe(model=model, data=data, loss="mse", lr=0.1, steps="0.5:4:3")
        >>> run["loss"].shape
        (1, 1, 3)
    """
    paths = [checkpoints] if isinstance(checkpoints, str | Path) else list(checkpoints)
    request = Request.resolve(paths, model, data, settings)
    target = Path(output) if output is not None else None
    if target is not None:
        check_target(target, resume=resume, overwrite=overwrite)
    with ExitStack() as stack:
        prepared = stack.enter_context(Preparation(request))
        return _measure(prepared, target, overwrite=overwrite, progress=progress or Silent())


@dataclass(frozen=True)
class Request:
    """What is to be probed: the settings, and live objects where they were given."""

    spec: ProbeSpec
    model: nn.Module | None
    data: Any

    @classmethod
    def resolve(
        cls,
        paths: Sequence[str | Path],
        model: str | nn.Module,
        data: Any,
        settings: Mapping[str, Any],
    ) -> Request:
        """Turn the arguments of `probe` into a spec and live objects."""
        values = {name: value for name, value in settings.items() if value is not None}
        for name in ("directions", "measures", "parameters", "freeze"):
            if isinstance(values.get(name), str):
                values[name] = (values[name],)
        live_model = None if isinstance(model, str) else model
        live_data = None if isinstance(data, str) else data
        if live_model is not None:
            values = {**_present_state(live_model), **values}
        elif not paths:
            raise SpecError(
                "no checkpoint was given", seen="(nothing)", hint="landscape probe CHECKPOINT …"
            )
        spec = ProbeSpec.from_mapping(
            {
                **values,
                "checkpoints": tuple(str(path) for path in paths) or ("(the model as it stands)",),
                "model": model if isinstance(model, str) else f"(live {type(model).__name__})",
                "data": data if isinstance(data, str) else f"(live {type(data).__name__})",
            }
        )
        return cls(spec, live_model, live_data)

    @property
    def as_it_stands(self) -> bool:
        """Whether the model's present weights are what is probed."""
        return self.spec.checkpoints == ("(the model as it stands)",)


def _present_state(model: nn.Module) -> dict[str, str]:
    parameter = next(model.parameters(), None)
    if parameter is None:
        raise MeasurementError(
            "the model has no parameters", seen=type(model).__name__, hint="pass a trained module"
        )
    kind = str(parameter.dtype).removeprefix("torch.")
    known = kind if kind in ("float32", "float64", "bfloat16") else "float32"
    return {"device": str(parameter.device), "dtype": known}


class Preparation:
    """Everything that is built before measuring, and put back after it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.spec = request.spec
        self.distributed = self.spec.engine == "ray" or self.spec.processes > 1
        self._stack = ExitStack()

    def __enter__(self) -> Preparation:
        with ExitStack() as stack:
            self._prepare(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _prepare(self, stack: ExitStack) -> None:
        self.infos = self._find()
        self.devices = self._choose_devices()
        # Where others measure, what is built here only serves to plan.
        device = choose_device("cpu") if self.distributed else self.devices[0]
        self.equipment = _equip(stack, self.request, device, self._draw)
        self.model, self.measures = self.equipment.model, self.equipment.measures
        self.plan = self._plan(self.equipment.sample)

    def _choose_devices(self) -> tuple[torch.device, ...]:
        """Return where this machine measures; a cluster says so itself, later."""
        if self.spec.engine == "ray":
            return (choose_device("cpu"),)
        return choose_devices(self.spec.devices, self.spec.processes)

    def _draw(self) -> batches.Sample:
        spec = self.spec
        return batches.draw(self._open_data(), spec.batch_size, spec.batches, spec.seed)

    def _find(self) -> list[CheckpointInfo]:
        if not self.request.as_it_stands:
            return checkpoints.find(self.spec.checkpoints)
        label = type(self.request.model).__name__
        return [CheckpointInfo(Path(), label, "live", UNKNOWN_STEP, self.spec.lr)]

    def _open_data(self) -> Any:
        data = self.request.data
        return _build_data(self.spec.data) if data is None else data

    def _plan(self, sample: batches.Sample) -> Plan:
        spec = self.spec
        kinds = spec.direction_specs()
        unscaled = [label for kind in kinds if not kind.scaled for label in kind.labels()]
        return Plan(
            settings=asdict(spec),
            checkpoints=self._planned_checkpoints(),
            directions=spec.direction_labels(),
            unscaled=tuple(unscaled),
            step_multiples=tuple(spec.step_grid().multiples().tolist()),
            measures={name: dict(measure.fields) for name, measure in self.measures.items()},
            provenance={
                "device": describe_devices(self.devices),
                "dtype": spec.dtype,
                "seed": spec.seed,
                "parameters": sum(p.numel() for p in self.model.parameters() if p.requires_grad),
                "sample_indices_sha256": sample.indices_hash(),
                "data_sha256": sample.content_hash(),
                "batch_notices": list(sample.notices),
                "versions": versions(),
                "site_measures": [
                    name for name, m in self.measures.items() if isinstance(m, SiteMeasure)
                ],
            },
            created=timestamp(),
            command=command_line(),
        )

    def _planned_checkpoints(self) -> tuple[PlannedCheckpoint, ...]:
        """Return the checkpoint axis; one that alone lacks a learning rate fails when opened."""
        planned = [
            PlannedCheckpoint(
                label=info.label,
                path="" if self.request.as_it_stands else str(info.path),
                training_step=info.training_step,
                learning_rate=info.learning_rate if self.spec.lr is None else self.spec.lr,
                sha256=info.sha256,
            )
            for info in self.infos
        ]
        scaled = any(direction.scaled for direction in self.spec.direction_specs())
        if scaled and all(checkpoint.learning_rate is None for checkpoint in planned):
            raise CheckpointError(
                "the checkpoint does not say its learning rate",
                seen=planned[0].label,
                hint="--lr X, the training step size that step multiples are multiples of",
            )
        return tuple(planned)

    @property
    def unit_points(self) -> int:
        """How many points of a line make a unit."""
        if any(isinstance(measure, SweepMeasure) for measure in self.measures.values()):
            return len(self.plan.step_multiples)
        return self.spec.chunk or UNIT_POINTS


def _equip(
    stack: ExitStack, request: Request, device: torch.device, draw: Callable[[], batches.Sample]
) -> Equipment:
    """Build what a worker measures with; the stack puts everything back."""
    spec = request.spec
    measures = registered.resolve(spec.measures)
    stack.enter_context(deterministic(allow_tf32=spec.allow_tf32))
    stack.enter_context(present(device))
    live = request.model is not None
    model = _build_model(spec.model) if request.model is None else request.model
    stack.enter_context(chosen_parameters(model, spec.parameters, spec.freeze))
    loads = not request.as_it_stands
    model = stack.enter_context(place_model(model, device, spec.dtype, live=live, loads=loads))
    losses.resolve(spec.loss, model)  # so that one that is not there is told at once
    load = None if request.as_it_stands else partial(_load, weights=spec.weights)
    return Equipment(spec, model, draw(), measures, load, live)


@contextmanager
def open_worker(
    device: str, *, request: Request, plan: Plan, sample: batches.Sample
) -> Iterator[Worker]:
    """Yield a worker for a plan that was made elsewhere, with the batches that were drawn there.

    Args:
        device: where it computes.
        request: model and settings; the data is not opened again.
        plan: of the run.
        sample: the batches.
    """
    with ExitStack() as stack:
        equipment = _equip(stack, request, choose_device(device), lambda: sample)
        yield stack.enter_context(Worker(plan, equipment))


def _build_model(spec: str) -> nn.Module:
    from landscape_cli.adapters.building import build_model

    return build_model(spec)


def _build_data(spec: str) -> Any:
    from landscape_cli.adapters.building import build_data

    return build_data(spec)


def _load(model: nn.Module, path: Path, *, weights: str) -> list[str]:
    return checkpoints.load_into(model, checkpoints.read(path, weights=weights))


def _measure(
    prepared: Preparation, target: Path | None, *, overwrite: bool, progress: Progress
) -> Run:
    plan = prepared.plan
    if target is not None and not overwrite:
        finished = find_complete(target, plan.to_header())
        if finished is not None:
            progress.notice(f"{target} is complete: nothing is left to measure")
            return finished
    with ExitStack() as stack:
        run: Engine = partial(_measure_here, prepared)
        if prepared.distributed:
            crew = stack.enter_context(_crew(prepared, progress))
            run = crew.run
            if prepared.spec.engine == "ray":
                plan = replace(plan, provenance={**plan.provenance, "device": crew.device})
        ledger = stack.enter_context(Ledger(plan.to_header(), target, overwrite=overwrite))
        for notice in (*ledger.notices, *plan.provenance["batch_notices"]):
            progress.notice(notice)
        progress.start(plan.points)
        units = run(
            plan,
            finished=ledger.finished,
            unit_points=prepared.unit_points,
            progress=progress,
        )
        for unit in stack.enter_context(closing(units)):
            ledger.add(unit)
            for notice in unit.notices:
                progress.notice(notice)
        if _nothing(plan, ledger.units):
            ledger.discard()
            raise _defeat(next(unit for unit in ledger.units if unit.key.kind == "failure"))
    return ledger.fold() if target is None else store.open_run(target)


class Engine(Protocol):
    """Measures what is not finished of a plan, and yields every unit as it is done."""

    def __call__(
        self, plan: Plan, *, finished: Collection[UnitKey], unit_points: int, progress: Progress
    ) -> Generator[UnitResult, None, None]:
        """Begin."""
        ...


def _measure_here(
    prepared: Preparation,
    plan: Plan,
    *,
    finished: Collection[UnitKey],
    unit_points: int,
    progress: Progress,
) -> Generator[UnitResult, None, None]:
    """Measure in this process.

    Results repeat bit for bit under equal conditions, so these are kept with them.
    """
    with Worker(plan, prepared.equipment) as worker:
        conditions = Conditions.recorded(finished)
        if conditions is None:
            conditions = worker.settle()
            yield conditions.unit()
        worker.keep_to(conditions)
        with limited(conditions.threads):
            yield from local.run(
                plan, worker, finished=finished, unit_points=unit_points, progress=progress
            )


def _crew(prepared: Preparation, progress: Progress) -> Crew:
    """Return the workers that a run asks for; they get the batches and not the data."""
    from landscape_cli.engine.crew import Crew
    from landscape_cli.sending import pack

    model = None if prepared.request.model is None else prepared.model
    opener = partial(
        open_worker,
        request=replace(prepared.request, model=model, data=None),
        plan=prepared.plan,
        sample=prepared.equipment.sample,
    )
    return Crew(_transport(prepared, pack(opener)), progress)


def _transport(prepared: Preparation, opener: bytes) -> Transport:
    if prepared.spec.engine == "ray":
        from landscape_cli.engine.ray import Cluster

        return Cluster(prepared.spec, opener)
    from landscape_cli.engine.processes import Processes

    devices = [str(device) for device in prepared.devices]
    return Processes(devices, opener, threads=shared(len(devices)))


def _defeat(failed: UnitResult) -> MeasurementError:
    """Return the error of a run in which no checkpoint could be opened, from the first of them."""
    hint = next(iter(failed.notices), "landscape inspect CHECKPOINT shows what it holds")
    return MeasurementError("no checkpoint could be measured", seen=failed.error, hint=hint)


def _nothing(plan: Plan, units: Sequence[UnitResult]) -> bool:
    """Whether no checkpoint could be opened."""
    failed = {unit.key.checkpoint for unit in units if unit.key.kind == "failure"}
    return len(failed) == len(plan.checkpoints)
