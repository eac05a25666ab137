"""The training itself: build, step, record, stop."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from landscape_cli import randomness
from landscape_cli.batches import Batch
from landscape_cli.devices import describe_device, deterministic
from landscape_cli.disk import replace_file
from landscape_cli.plan import command_line, timestamp, versions
from landscape_cli.progress import Progress, Silent
from landscape_cli.record import Recorder, read_history
from landscape_cli.record.files import file_name
from landscape_cli.threads import limited
from landscape_cli.training.effort import suitable_threads
from landscape_cli.training.evaluation import Score, correct, divisor, evaluate, forward, place
from landscape_cli.training.optimizers import Factory
from landscape_cli.training.preparation import Prepared, Request, prepare

SUMMARY = "training.json"


@dataclass(frozen=True)
class TrainingResult:
    """What a training left.

    Attributes:
        folder: of the recording: checkpoints, ``history.csv`` and ``training.json``.
        checkpoints: ordered by step.
        steps: updates that were made.
        history: columns by name, one row per step: ``loss``, ``accuracy``, ``learning_rate``,
            and ``test_loss``, ``test_accuracy`` where they were evaluated.
        diverged_at: the step whose loss was not finite; None if all were.
        score: on the held-out data at the end; None without such data.
        wall_seconds: how long it took, recording and evaluating included.
        model: with the weights of the last step.
    """

    folder: Path
    checkpoints: tuple[Path, ...]
    steps: int
    history: dict[str, np.ndarray]
    diverged_at: int | None
    score: Score | None
    wall_seconds: float
    model: nn.Module = field(repr=False)

    @property
    def losses(self) -> np.ndarray:
        """The loss of every step from the first on, shape (steps,); what diverged included."""
        return self.history["loss"][self.history["step"] > 0]


def train(
    model: str | nn.Module,
    data: str | Dataset[Any] | Iterable[Any],
    *,
    out: str | Path,
    test_data: str | Dataset[Any] | Iterable[Any] | None = None,
    optimizer: str | Factory = "sgd",
    overwrite: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> TrainingResult:
    """Train a model and record its trajectory; the last weights whatever the schedule.

    The same specs and seed give the same weights, bit for bit on the same machine. A loss that
    is not finite ends the training; it is a result, not an error: the weights that have it are
    recorded, and the result says at which step.

    Args:
        model: a spec, or a module, which is trained in place.
        data: a spec, a `Dataset`, or an iterable of batches.
        out: folder of the recording.
        test_data: held-out data, evaluated wherever a checkpoint is recorded.
        optimizer: a name, or a function that makes the optimizer of a model.
        overwrite: replace a recording that is in the folder.
        progress: is told how far the training is.
        **settings: the other fields of `TrainingSpec`: ``steps``, ``lr``, ``batch_size``, …

    Raises:
        SpecError: If a setting cannot be meant, or the folder holds a recording.
        AdapterError: If model or data cannot be built.
        MeasurementError: If the model does not take the data, or the loss the output.

    Example:
        >>> import tempfile, torch
        >>> data = torch.utils.data.TensorDataset(torch.ones(4, 1), torch.ones(4, 1))
        >>> result = train(torch.nn.Linear(1, 1), data, out=tempfile.mkdtemp(), loss="mse",
        ...                steps=20, every=10, full_batch=True)
        >>> [path.name for path in result.checkpoints]
        ['step-000000.safetensors', 'step-000010.safetensors', 'step-000020.safetensors']
    """
    request = Request.of(model, data, test_data, optimizer, settings)
    with ExitStack() as stack:
        stack.enter_context(randomness.preserved())
        stack.enter_context(deterministic())
        prepared = prepare(request)
        existing: Any = "overwrite" if overwrite else "error"
        recording = request.spec.recording(prepared.steps)
        recorder = Recorder(out, **recording, specs=request.specs, existing=existing)
        stack.enter_context(recorder)
        stack.enter_context(_training_mode(prepared.model))
        course = _Course(prepared, recorder, progress or Silent())
        course.run()
    return _summarise(course)


@contextmanager
def _training_mode(model: nn.Module) -> Iterator[None]:
    flags = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training


class _Course:
    """A training while it goes on."""

    def __init__(self, prepared: Prepared, recorder: Recorder, progress: Progress) -> None:
        self.prepared = prepared
        self.recorder = recorder
        self.progress = progress
        self.steps = 0
        self.diverged_at: int | None = None
        self.score: Score | None = None
        self.wall_seconds = 0.0
        self.threads = torch.get_num_threads()
        self._last_loss = math.nan

    def run(self) -> None:
        """Make the steps, until they are made or the loss is not finite."""
        with ExitStack() as stack:
            self._run(stack)

    def _run(self, stack: ExitStack) -> None:
        self.progress.start(self.prepared.steps)
        self._set_rate(1)
        if self.recorder.step(self.prepared.model, step=0, optimizer=self.prepared.optimizer):
            self._evaluate(0)
        started = time.perf_counter()
        for raw in islice(self.prepared.feed, self.prepared.steps):
            batch = place(raw, self.prepared.model, whole=self.prepared.loss.whole)
            if not self.steps:
                self.threads = suitable_threads(self.prepared.model, batch)
                stack.enter_context(limited(self.threads))
            if not self._step(batch):
                break
        self.wall_seconds = time.perf_counter() - started
        self._finish()

    def _step(self, batch: Batch) -> bool:
        """Make one update; return whether the loss that it started from was finite."""
        model, loss = self.prepared.model, self.prepared.loss
        number = self.steps + 1
        self._set_rate(number)
        output = forward(model, batch)
        terms = loss.terms(batch)
        value = loss.total(output, batch) / divisor(loss, terms)
        self._last_loss = float(value.detach())
        if not math.isfinite(self._last_loss):
            self._diverge(number)
            return False
        self.prepared.optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        self.prepared.optimizer.step()
        self.steps = number
        self._record(correct(loss, output, batch), terms)
        return True

    def _set_rate(self, step: int) -> None:
        if not self.prepared.scheduled:
            return
        for group in self.prepared.optimizer.param_groups:
            group["lr"] = self.prepared.spec.learning_rate(step)

    def _record(self, hits: int | None, terms: int) -> None:
        metrics = {} if hits is None or not terms else {"accuracy": hits / terms}
        recorded = self.recorder.step(
            self.prepared.model,
            step=self.steps,
            optimizer=self.prepared.optimizer,
            loss=self._last_loss,
            metrics=metrics,
        )
        if recorded:
            self._evaluate(self.steps)
        self.progress.advance(1, f"step {self.steps}, loss {self._last_loss:.4g}")

    def _evaluate(self, step: int) -> None:
        data = self.prepared.test_data
        if data is None:
            return
        self.score = evaluate(self.prepared.model, data, self.prepared.loss)
        numbers = {"test_loss": self.score.loss, "test_accuracy": self.score.accuracy}
        self.recorder.note(step, **numbers)

    def _diverge(self, step: int) -> None:
        self.diverged_at = step
        self.progress.notice(
            f"the loss is {self._last_loss} at step {step}: training stops, and the weights that "
            f"have it are recorded as step {self.steps}"
        )

    def _finish(self) -> None:
        """Record and evaluate the last weights, if the schedule has not."""
        last = self.recorder.folder / file_name(self.steps)
        if last not in self.recorder.paths:
            rate = float(self.prepared.optimizer.param_groups[0]["lr"])
            self.recorder.record(self.prepared.model, step=self.steps, learning_rate=rate)
            self._evaluate(self.steps)
        if self.diverged_at is not None:
            self.recorder.note(self.diverged_at, loss=self._last_loss)


def _summarise(course: _Course) -> TrainingResult:
    folder, prepared = course.recorder.folder, course.prepared
    summary = {
        "settings": asdict(prepared.spec),
        "steps": course.steps,
        "diverged_at": course.diverged_at,
        "score": None if course.score is None else asdict(course.score),
        "wall_seconds": course.wall_seconds,
        "threads": course.threads,
        "device": describe_device(next(prepared.model.parameters()).device),
        "versions": versions(),
        "created": timestamp(),
        "command": command_line(),
    }
    text = json.dumps(summary, indent=2) + "\n"
    replace_file(folder / SUMMARY, text.encode(), what="the summary of the training")
    return TrainingResult(
        folder=folder,
        checkpoints=tuple(course.recorder.paths),
        steps=course.steps,
        history=read_history(folder),
        diverged_at=course.diverged_at,
        score=course.score,
        wall_seconds=course.wall_seconds,
        model=prepared.model,
    )
