"""What a training is asked to do: a frozen dataclass, checked where it is made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from landscape_cli.errors import SpecError
from landscape_cli.specs import LOSSES, DType

DEFAULT_STEPS = 500
RECORDED = 20
"""About how many checkpoints a training leaves where nothing else is asked for."""


@dataclass(frozen=True)
class TrainingSpec:
    """Everything that decides a training.

    Attributes:
        model: spec of the model.
        data: spec of the data to train on.
        test_data: spec of held-out data, evaluated wherever a checkpoint is recorded.
        steps: number of updates; 500 where neither this nor `epochs` is given.
        epochs: passes over the data, instead of `steps`.
        batch_size: samples in a batch; a ragged last batch of an epoch is left out.
        full_batch: every update sees all samples, in their order.
        loss: as ``landscape probe`` takes it.
        lr: step size after the warm-up and before the first decay; an optimizer that was given
            as a function keeps its own.
        optimizer: ``sgd``, ``adam``, ``adamw`` or ``bnp`` (gradient descent under batch
            normalisation preconditioning), with options as ``adam?eps=1e-6``.
        momentum: of ``sgd`` and ``bnp``.
        weight_decay: factor of the penalty's gradient.
        warmup_steps: over which the step size grows linearly from `warmup_start`·lr to lr.
        warmup_start: where it starts, as a share of lr.
        decay_at: steps after which the step size is multiplied by `decay_factor`.
        decay_factor: see `decay_at`.
        every: record every so many steps; a twentieth of the steps where no way of recording is
            given.
        at: record these steps.
        schedule: ``log`` or ``log:N``, as in `Recorder`.
        seed: decides the weights of a model that is built here, the order of the samples and
            dropout.
        device: ``auto`` is the first GPU, else the CPU; a live model stays where it is.
        dtype: type of a model that is built here.

    Raises:
        SpecError: If a value cannot be meant.
    """

    model: str
    data: str
    test_data: str | None = None
    steps: int | None = None
    epochs: int | None = None
    batch_size: int = 128
    full_batch: bool = False
    loss: str = "cross-entropy"
    lr: float = 0.1
    optimizer: str = "sgd"
    momentum: float = 0.0
    weight_decay: float = 0.0
    warmup_steps: int = 0
    warmup_start: float = 0.1
    decay_at: tuple[int, ...] = ()
    decay_factor: float = 0.1
    every: int | None = None
    at: tuple[int, ...] = ()
    schedule: str | None = None
    seed: int = 0
    device: str = "auto"
    dtype: DType = "float32"

    def __post_init__(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise SpecError(
                "a training has steps or epochs, not both",
                seen=f"steps={self.steps}, epochs={self.epochs}",
                hint="leave one of them out",
            )
        for name in ("steps", "epochs", "batch_size", "every"):
            _check_whole(name, getattr(self, name), 1)
        for name in ("warmup_steps", "seed"):
            _check_whole(name, getattr(self, name), 0)
        for step in (*self.decay_at, *self.at):
            _check_whole("decay_at, at", step, 0)
        for name in ("lr", "decay_factor"):
            _check_number(name, getattr(self, name), positive=True)
        for name in ("momentum", "weight_decay", "warmup_start"):
            _check_number(name, getattr(self, name), positive=False)
        if self.loss not in LOSSES and ".py:" not in self.loss:
            raise SpecError(
                f"no loss is named {self.loss!r}",
                seen=", ".join(LOSSES),
                hint="or FILE.py:FUNCTION",
            )
        if self.dtype not in get_args(DType):
            raise SpecError(
                "dtype has no such value", seen=self.dtype, hint=", ".join(get_args(DType))
            )

    def learning_rate(self, step: int) -> float:
        """Return the step size of update number `step`, counted from 1.

        Example:
            >>> spec = TrainingSpec("m:x", "d:y", lr=1.0, warmup_steps=2, decay_at=(4,))
            >>> [round(spec.learning_rate(step), 3) for step in range(1, 7)]
            [0.1, 0.55, 1.0, 1.0, 0.1, 0.1]
        """
        passed = sum(step > milestone for milestone in self.decay_at)
        rate = self.lr * self.decay_factor**passed
        if step > self.warmup_steps:
            return rate
        grown = (step - 1) / self.warmup_steps
        return rate * (self.warmup_start + (1 - self.warmup_start) * grown)

    def recording(self, steps: int) -> dict[str, Any]:
        """Return the schedule of a training of so many steps, as arguments of `Recorder`."""
        every = self.every
        if every is None and not self.at and self.schedule is None:
            every = max(1, steps // RECORDED)
        return {"every": every, "at": self.at, "schedule": self.schedule}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> TrainingSpec:
        """Build a spec from names and plain values.

        Raises:
            SpecError: If a name is unknown, or a value cannot be meant.
        """
        known = [item.name for item in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise SpecError(
                    f"a training has no setting {name!r}",
                    seen=", ".join(known),
                    hint="check the name",
                )
        given: dict[str, Any] = {
            k: tuple(v) if k in ("at", "decay_at") else v for k, v in values.items()
        }
        return cls(**given)


def _check_whole(name: str, value: object, low: int) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise SpecError(
            f"{name} is not a whole number in its range",
            seen=f"{name}={value!r}",
            hint=f"a whole number from {low}",
        )


def _check_number(name: str, value: object, *, positive: bool) -> None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or value < 0 or (positive and value == 0):  # type: ignore[operator]
        raise SpecError(
            f"{name} is not a {'positive' if positive else 'non-negative'} number",
            seen=f"{name}={value!r}",
            hint="lr=0.1, momentum=0.9, weight_decay=1e-4",
        )
