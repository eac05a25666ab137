"""The recorder: what a training loop calls once a step."""

from __future__ import annotations

import atexit
import json
import math
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from landscape_cli.errors import SpecError
from landscape_cli.record.files import (
    file_hash,
    file_name,
    recorded,
    remove_unfinished,
    step_of,
    write_checkpoint,
)
from landscape_cli.record.history import NAME, History, as_number
from landscape_cli.record.live import LiveProbe
from landscape_cli.record.schedule import Schedule
from landscape_cli.record.weights import Weights


class Recorder:
    """Writes checkpoints of a training run, and its course, into a folder.

    The folder is a trajectory for ``landscape probe``: files ``step-000100.safetensors`` with
    the training step and the learning rate in their metadata. Beside them, ``history.csv`` has
    one row per step. Nothing of the training is disturbed: not the random state, nor the mode,
    the device or the gradients of the model. Of the processes of a distributed training the
    first one writes.

    Args:
        folder: is made where it does not exist.
        every: record the steps that are multiples of this, 0 included.
        at: record these steps.
        schedule: ``log`` records 0, 1, 2, 5, 10, 20, …; ``log:10`` ten steps per decade. Without
            any of the three, every 100th step is recorded.
        specs: ``model``, ``data`` and ``loss`` as ``landscape probe`` takes them, stored in the
            files for whoever finds them.
        existing: what to do with a recording that is in the folder already: ``error``,
            ``resume`` (keep it; steps that training goes through again are replaced) or
            ``overwrite`` (delete its checkpoints, its history and its run).
        probe: measures the landscape at the recorded steps, into one run file, instead of
            keeping checkpoints or beside them.

    Raises:
        SpecError: If the folder holds a recording, or an argument cannot be meant.

    Examples:
        >>> import tempfile
        >>> model = nn.Linear(2, 1)
        >>> with Recorder(tempfile.mkdtemp(), every=2) as recorder:
        ...     for _ in range(4):
        ...         path = recorder.step(model, learning_rate=0.1, loss=0.5)
        >>> [path.name for path in recorder.paths]
        ['step-000002.safetensors', 'step-000004.safetensors']
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        every: int | None = None,
        at: Iterable[int] = (),
        schedule: str | None = None,
        specs: Mapping[str, str] | None = None,
        existing: Literal["error", "resume", "overwrite"] = "error",
        probe: LiveProbe | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.schedule = Schedule.of(every, at, schedule)
        self.paths: list[Path] = []
        self.probe = probe
        self._specs = _checked_specs(specs or {})
        self._writes = _is_first_process()
        self._last_step: int | None = None
        self._resumed = False
        if self._writes:
            self._prepare_folder(existing)
        self._history = History(self.folder / NAME)
        atexit.register(_close_at_exit, weakref.ref(self))

    @property
    def last_step(self) -> int:
        """The training step of the last call; of the last checkpoint before one; else 0."""
        if self._last_step is not None:
            return self._last_step
        steps = [step_of(path) or 0 for path in self.paths]
        return max([*steps, *(self.probe.steps if self.probe else ())], default=0)

    def step(
        self,
        model: nn.Module,
        *,
        step: int | None = None,
        learning_rate: float | Tensor | None = None,
        optimizer: Any = None,
        loss: float | Tensor | None = None,
        metrics: Mapping[str, float | Tensor] | None = None,
    ) -> Path | None:
        """Take note of one training step; call it after ``optimizer.step()``.

        Args:
            model: the module as it is now, after this step; wrappers are looked through.
            step: number of updates so far. None counts: one more than in the last call, from 1.
                ``step=0`` before the loop records the initial weights.
            learning_rate: of this step. None takes it from the optimizer.
            optimizer: whose first group has the learning rate.
            loss: of this step; a tensor is not read before it has to be.
            metrics: more numbers for the history, by name.

        Returns:
            The checkpoint, or the run that it was measured into, if the schedule has this step;
            None otherwise.

        Raises:
            SpecError: If the step is not larger than the last.
            CheckpointError: If the file cannot be written.
            LandscapeError: If the first step that is to be measured cannot be.
        """
        step = self._next(step)
        rate = _rate(learning_rate, optimizer)
        self.note(step, learning_rate=rate, loss=loss, **(metrics or {}))
        if step not in self.schedule:
            return None
        return self.record(model, step=step, learning_rate=rate, loss=loss)

    def note(self, step: int, **numbers: float | Tensor | None) -> None:
        """Add numbers to the history's row of a step, which must not lie before the last."""
        if self._writes:
            self._history.note(step, numbers)

    def record(
        self,
        model: nn.Module,
        *,
        step: int,
        learning_rate: float | None = None,
        loss: float | Tensor | None = None,
    ) -> Path | None:
        """Write a checkpoint now, whatever the schedule says; None where this process does not.

        Raises:
            CheckpointError: If the file cannot be written.
        """
        if not self._writes:
            return None
        weights = Weights.of(model)
        path = self.folder / file_name(step)
        kept = self.probe is None or self.probe.keep_checkpoints
        if kept:
            write_checkpoint(path, weights, self._metadata(step, learning_rate, loss, weights))
            if path not in self.paths:
                self.paths.append(path)
        if self.probe is not None:
            digest = file_hash(path) if kept else weights.content_hash()
            path = self.probe.measure(model, step, learning_rate, digest)
        self._history.flush()
        return path

    def close(self) -> None:
        """Write what waits of the history; at the end of the process it happens by itself."""
        if self._writes:
            self._history.flush(last=True)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _prepare_folder(self, existing: str) -> None:
        if existing not in ("error", "resume", "overwrite"):
            raise SpecError(
                "existing= of the recorder has no such value",
                seen=repr(existing),
                hint="error, resume or overwrite",
            )
        if self.folder.exists() and not self.folder.is_dir():
            raise SpecError(
                "the folder of the recording is a file", seen=self.folder, hint="another folder"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(self.folder)
        present = [*recorded(self.folder), *self.folder.glob(NAME)]
        if self.probe is not None and self.probe.open(self.folder).exists():
            present.append(self.probe.open(self.folder))
        if present and existing == "error":
            raise SpecError(
                "the folder holds a recording already",
                seen=f"{self.folder}: {len(present)} files, {present[0].name}, …",
                hint='existing="resume" goes on with it, existing="overwrite" replaces it',
            )
        if existing == "overwrite":
            for path in present:
                path.unlink()
        self.paths = recorded(self.folder)
        self._resumed = bool(present) and existing == "resume"
        if self._resumed and self.probe is not None:
            self.probe.resume()

    def _next(self, step: int | None) -> int:
        """Return the number of this step, and on the first one after a resume make way for it."""
        if step is None:
            step = self.last_step + 1
        elif self._last_step is not None and step <= self._last_step:
            raise SpecError(
                "the training step is not larger than the last",
                seen=f"{step} after {self._last_step}",
                hint="call step() once per update, or leave step= out",
            )
        if self._resumed and self._last_step is None:
            self._history.truncate(step)
            self._drop_from(step)
        self._last_step = step
        return step

    def _drop_from(self, step: int) -> None:
        """Delete the checkpoints from `step` on: they belong to a course that is not gone on."""
        for path in self.paths:
            if (step_of(path) or 0) >= step:
                path.unlink(missing_ok=True)
        self.paths = recorded(self.folder)
        if self.probe is not None:
            self.probe.drop_from(step)

    def _metadata(
        self, step: int, rate: float | None, loss: float | Tensor | None, weights: Weights
    ) -> dict[str, str]:
        metadata = {"format": "pt", "training_step": str(step), **self._specs}
        if rate is not None:
            metadata["learning_rate"] = repr(rate)
        if loss is not None:
            metadata["loss"] = repr(as_number(loss))
        if weights.tied:
            metadata["tied"] = json.dumps(weights.tied, sort_keys=True)
        return metadata


def _close_at_exit(reference: weakref.ref[Recorder]) -> None:
    recorder = reference()
    if recorder is not None and recorder.folder.is_dir():
        recorder.close()


def _checked_specs(specs: Mapping[str, str]) -> dict[str, str]:
    for name in specs:
        if name not in ("model", "data", "loss"):
            raise SpecError("no spec has this name", seen=name, hint="model, data, loss")
    # The key ``loss`` is the value of the loss at this step.
    return {"loss_spec" if name == "loss" else name: str(text) for name, text in specs.items()}


def _rate(learning_rate: float | Tensor | None, optimizer: Any) -> float | None:
    if learning_rate is None:
        if optimizer is None:
            return None
        learning_rate = optimizer.param_groups[0]["lr"]
    rate = as_number(learning_rate)
    if not math.isfinite(rate):
        raise SpecError("the learning rate is not finite", seen=rate, hint="check the schedule")
    return rate


def _is_first_process() -> bool:
    distributed = torch.distributed
    started = distributed.is_available() and distributed.is_initialized()
    return not started or distributed.get_rank() == 0
