"""A dry run: what would go wrong or be slow in a probe, before it is started."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from landscape_cli.errors import MeasurementError
from landscape_cli.probing import Preparation, Request
from landscape_cli.threads import limited, shared

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import Dataset

    from landscape_cli.engine.choice import Choice
    from landscape_cli.engine.worker import Worker
    from landscape_cli.objective import Objective
    from landscape_cli.site import Site
    from landscape_cli.specs import ProbeSpec

Level = Literal["good", "note", "problem"]

HALF_AN_HOUR = 1800.0
RUNNING = "running"
ALIKE = 0.2
"""Relative difference of two curvatures from which they are told apart."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: what it is about: ``determinism``, ``dropout``, ``memory``, …
        level: ``good``, ``note`` or ``problem``.
        what: what was found, one line.
        advice: what to change; empty where nothing need be.
    """

    subject: str
    level: Level
    what: str
    advice: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """What a dry run found.

    Attributes:
        findings: in the order they were looked at.
        parameters: number of trainable scalars.
        strategy: how points would be evaluated.
        chunk: points evaluated together.
        points: number of points of the run.
        seconds_per_point: of one point, with that strategy, on one worker.
        seconds_expected: of all points, on all workers; measures beyond the basic ones come on top.
        bytes_expected: what is taken beside the model's own weights, θ in its copies and what a
            point keeps for its gradient, by every worker on the first device.
        bytes_available: free memory of the first device, before θ₀ and g are there.
        refusals: why the other strategies cannot serve, by name.
        workers: how many processes would measure.
    """

    findings: tuple[Finding, ...]
    parameters: int
    strategy: str
    chunk: int
    points: int
    seconds_per_point: float
    seconds_expected: float
    bytes_expected: int
    bytes_available: int
    refusals: dict[str, str] = field(default_factory=dict)
    workers: int = 1

    @property
    def healthy(self) -> bool:
        """Whether no problem was found."""
        return not any(finding.level == "problem" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"healthy": self.healthy, **asdict(self)}


def examine(
    checkpoints: str | Path | Sequence[str | Path] = (),
    *,
    model: str | nn.Module,
    data: str | Dataset[Any] | Iterable[Any],
    **settings: Any,
) -> Diagnosis:
    """Evaluate the first checkpoint a few times, and say what a probe would meet.

    Args:
        checkpoints: as for `landscape_cli.probe`, of which only the first is opened.
        model: as for `landscape_cli.probe`.
        data: as for `landscape_cli.probe`.
        **settings: as for `landscape_cli.probe`.

    Returns:
        The diagnosis. A module that was passed in is bit for bit what it was.

    Raises:
        LandscapeError: If a probe could not even start.

    Example:
        >>> import torch, landscape_cli.doctor
        >>> model = torch.nn.Linear(3, 1)
        >>> data = torch.utils.data.TensorDataset(torch.randn(8, 3), torch.randn(8, 1))
        >>> landscape_cli.doctor.examine(model=model, data=data, loss="mse", lr=0.1).healthy
        True
    """
    from landscape_cli.engine.worker import Worker

    paths = [checkpoints] if isinstance(checkpoints, str | Path) else list(checkpoints)
    request = Request.resolve(paths, model, data, settings)
    asked = request.spec
    sharing = _sharing(asked)
    request = replace(request, spec=asked.here())
    with ExitStack() as stack:
        stack.enter_context(limited(shared(sharing)))
        prepared = stack.enter_context(Preparation(request))
        worker = stack.enter_context(Worker(prepared.plan, prepared.equipment))
        stack.enter_context(limited(worker.settle().threads))
        return _Examination(worker, workers=asked.processes, sharing=sharing).diagnosis()


def _sharing(spec: ProbeSpec) -> int:
    """Return how many workers share the first device, as far as this machine decides that."""
    from landscape_cli.devices import choose_devices

    if spec.engine != "local":
        return 1
    devices = choose_devices(spec.devices, spec.processes)
    return devices.count(devices[0])


class _Examination:
    """The looks that are taken at an open checkpoint."""

    def __init__(self, worker: Worker, *, workers: int, sharing: int) -> None:
        self._worker, self._workers, self._sharing = worker, workers, sharing
        self._site: Site = worker.site(0)
        self._objective: Objective = self._site.objective

    def diagnosis(self) -> Diagnosis:
        """Take every look."""
        from landscape_cli.engine.memory import available_bytes

        findings = [
            self._values(),
            self._determinism(),
            self._modes(),
            self._randomness(),
            self._buffers(),
            self._reach(),
            self._second_derivative(),
            *self._data(),
        ]
        choice, seconds, told = self._strategy()
        points = self._worker.plan.points
        expected = seconds * points / self._workers
        needed = self._sharing * self._bytes(choice.chunk)
        # What is open here has θ₀ and g already.
        available = available_bytes(self._site.parameters.device) + 2 * self._theta_bytes()
        findings += [
            *told,
            _time_finding(expected, points, self._workers),
            _memory_finding(needed, available),
        ]
        return Diagnosis(
            findings=tuple(findings),
            parameters=self._site.parameters.count,
            strategy=choice.strategy,
            chunk=choice.chunk,
            points=points,
            seconds_per_point=seconds,
            seconds_expected=expected,
            bytes_expected=needed,
            bytes_available=available,
            refusals=self._refusals(),
            workers=self._workers,
        )

    def _values(self) -> Finding:
        loss, norm = self._site.base_loss, self._site.gradient_norm
        text = f"loss {loss:.6g}, gradient norm {norm:.6g}"
        if np.isfinite(loss) and np.isfinite(norm) and norm > 0:
            return Finding("values", "good", text)
        advice = "check the weights, the data's scale and --loss"
        return Finding("values", "problem", text, advice)

    def _determinism(self) -> Finding:
        """Evaluate twice more and compare with the first time, number by number."""
        site = self._site
        again = [self._objective.value_and_change(site.gradient) for _ in range(2)]
        change = max(float(squared.sqrt()) for _, squared in again) / (site.gradient_norm or 1.0)
        if change == 0 and all(float(loss) == site.base_loss for loss, _ in again):
            return Finding("determinism", "good", "two evaluations agree bit for bit")
        return Finding(
            "determinism",
            "problem",
            f"two evaluations differ: the gradient by {change:.1g} of its norm",
            "look for operations without a fixed order, and for random numbers of the model's own; "
            "OMP_NUM_THREADS=1, or --device cpu",
        )

    def _modes(self) -> Finding:
        from landscape_cli.norm_layers import batch_layers

        layers = batch_layers(self._objective.model)
        mode = self._objective.norm_mode
        if not layers:
            return Finding("norm layers", "good", "no layer normalises over the batch")
        kinds = sorted({type(layer).__name__ for layer in layers.values()})
        what = f"{len(layers)} layers ({', '.join(kinds)}) normalise over the batch; mode {mode}"
        smallest = min(batch.size for batch in self._objective.batches)
        if mode != RUNNING and smallest < 16:
            advice = "a larger --batch-size: their statistics are noisy"
            return Finding("norm layers", "problem", f"{what}, over {smallest} samples", advice)
        return Finding(
            "norm layers",
            "note",
            what,
            "" if mode == "batch" else "--norm-mode batch is the default",
        )

    def _randomness(self) -> Finding:
        import torch

        dropping = [
            name
            for name, module in self._objective.model.named_modules()
            if isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p > 0  # noqa: SLF001
        ]
        if not self._objective.draws_random:
            return Finding("dropout", "good", "the forward pass draws no random numbers")
        what = f"{len(dropping)} dropout layers" if dropping else "the forward pass"
        return Finding(
            "dropout",
            "note",
            f"{what} draw random numbers: one fixed mask per batch, decided by --seed",
            "--norm-mode running measures without dropout",
        )

    def _buffers(self) -> Finding:
        if not self._objective.volatile_buffers:
            return Finding("buffers", "good", "the forward pass leaves buffers alone")
        return Finding(
            "buffers",
            "note",
            "the forward pass changes buffers; they are put back before every point",
        )

    def _reach(self) -> Finding:
        unreached = self._objective.unreached
        if not unreached:
            return Finding("parameters", "good", "the loss reaches every parameter that trains")
        names = ", ".join(unreached[:3]) + (", …" if len(unreached) > 3 else "")
        advice = "--freeze leaves them out, so that random directions do not move them"
        return Finding(
            "parameters", "note", f"the loss does not reach {len(unreached)}: {names}", advice
        )

    def _second_derivative(self) -> Finding:
        from landscape_cli.engine.limit import difference_curvature

        try:
            limit = self._objective.directional_curvature(self._site.gradient)
        except MeasurementError as error:
            what = f"there is no second derivative: {error.seen}"
            return Finding("curvature", "note", what, "the limit at step 0 is a central difference")
        # An operation that torch may not differentiate twice can come out as constant, silently.
        difference = difference_curvature(self._site, self._site.gradient)
        if abs(limit - difference) > ALIKE * max(limit, difference):
            what = (
                f"second derivatives say {limit:.4g}, differences of the gradient {difference:.4g}"
            )
            advice = "kinks of the loss, or an operation without a second derivative of its own"
            return Finding("curvature", "note", what, advice)
        return Finding("curvature", "good", "the model can be differentiated twice")

    def _data(self) -> list[Finding]:
        notices = self._worker.plan.provenance["batch_notices"]
        return [
            Finding("data", "note", notice, "a smaller --batch-size or --batches")
            for notice in notices
        ]

    def _strategy(self) -> tuple[Choice, float, list[Finding]]:
        """Return the choice of a run, the seconds a point takes, and what is in the way."""
        from landscape_cli.engine.choice import Choice

        findings = []
        steering = self._worker.steering
        try:
            self._worker.choose(0)
        except MeasurementError as error:
            steering.adopt(Choice("plain"))
            findings = [Finding("strategy", "problem", f"{error.what}: {error.seen}", error.hint)]
        seconds = self._seconds_per_point()
        told = [Finding("strategy", "note", text) for text in steering.take_told()]
        return steering.choice or Choice("plain"), seconds, findings + told

    def _seconds_per_point(self) -> float:
        example = self._worker.example(0)
        if example is None:
            return float("nan")
        slice_, sizes = example
        steering = self._worker.steering
        chunk = steering.choice.chunk if steering.choice else 1
        points = np.resize(sizes, (chunk, *sizes.shape[1:]))
        sweep = steering.sweep("doctor", self._site, slice_)
        sweep.evaluate(points)  # the first time prepares and compares
        started = time.perf_counter()
        sweep.evaluate(points)
        steering.revise()
        return (time.perf_counter() - started) / chunk

    def _theta_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self._site.parameters.tensors)

    def _bytes(self, chunk: int) -> int:
        """Return what a process takes beside the model's own weights, at its height.

        θ₀ and g; a direction that is not g, or the two of a plane; one copy at the limit, another
        where batches are added up; and what the forward pass and its derivative keep.
        """
        from landscape_cli.engine.choice import point_bytes

        plan, several = self._worker.plan, len(self._objective.batches) > 1
        other = any(label != "gradient" for label in plan.directions)
        copies = 3 + several + max(int(other), 0 if plan.plane is None else 2)
        points = chunk * point_bytes(self._site) if chunk > 1 else 2 * self._kept_bytes()
        return copies * self._theta_bytes() + points

    def _kept_bytes(self) -> int:
        """Return what one evaluation keeps for its gradient, θ itself aside."""
        import torch

        own = {t.untyped_storage().data_ptr() for t in self._site.parameters.tensors}
        kept: dict[int, int] = {}

        def count(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            self._objective.value_and_change(self._site.gradient)
        return sum(size for place, size in kept.items() if place not in own)

    def _refusals(self) -> dict[str, str]:
        from landscape_cli.engine.choice import STRATEGIES
        from landscape_cli.engine.strategy import Line

        line = Line("gradient", self._site.gradient)
        refusals = {name: s.refusal(self._site, line) for name, s in STRATEGIES.items()}
        return {name: refusal for name, refusal in refusals.items() if refusal}


def _time_finding(seconds: float, points: int, workers: int) -> Finding:
    together = f" on {workers} workers" if workers > 1 else ""
    what = f"{points:,} points take about {_duration(seconds)}{together}"
    if seconds > HALF_AN_HOUR:
        advice = "fewer --steps, --direction or --batches, --steps auto, or a GPU"
        return Finding("time", "note", what, advice)
    return Finding("time", "good", what)


def _memory_finding(needed: int, available: int) -> Finding:
    what = f"about {needed / 2**30:.2f} GiB of {available / 2**30:.2f} GiB that are free"
    if needed > available:
        advice = "a smaller --batch-size, --micro-batch, --chunk 1, or a larger machine"
        return Finding("memory", "problem", what, advice)
    return Finding("memory", "good", what)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
