"""What a training works with: model, data, loss and optimizer, built from specs or given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from landscape_cli import losses, randomness
from landscape_cli.adapters.building import build_data, build_model
from landscape_cli.devices import choose_device
from landscape_cli.errors import MeasurementError, SpecError
from landscape_cli.training.feed import Feed
from landscape_cli.training.optimizers import Factory, build_optimizer
from landscape_cli.training.spec import DEFAULT_STEPS, TrainingSpec


@dataclass(frozen=True)
class Request:
    """The settings of a training, and the live objects among its arguments.

    Attributes:
        spec: the settings; a live object is named by its type.
        model: a module that was given.
        data: data that were given.
        test_data: held-out data that were given.
        optimizer: a function that makes the optimizer.
    """

    spec: TrainingSpec
    model: nn.Module | None
    data: Any
    test_data: Any
    optimizer: Factory | None

    @classmethod
    def of(
        cls, model: Any, data: Any, test_data: Any, optimizer: Any, settings: Mapping[str, Any]
    ) -> Request:
        """Sort the arguments of `train`."""
        given = {"model": model, "data": data, "test_data": test_data, "optimizer": optimizer}
        named = {name: _name(value) for name, value in given.items()}
        kept = {name: value for name, value in settings.items() if value is not None}
        spec = TrainingSpec.from_mapping({**kept, **named})
        live = {n: None if isinstance(value, str) else value for n, value in given.items()}
        return cls(spec, **live)

    @property
    def specs(self) -> dict[str, str]:
        """What a checkpoint should say of how to build model and data again."""
        built = {"model": self.spec.model if self.model is None else None}
        built["data"] = self.spec.data if self.data is None else None
        known = {name: text for name, text in built.items() if text is not None}
        return {**known, "loss": self.spec.loss}


def _name(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    name = getattr(value, "__name__", None) or type(value).__name__
    return f"(live {name})"


@dataclass(frozen=True)
class Prepared:
    """Everything that the steps need.

    Attributes:
        spec: the settings.
        model: on its device.
        feed: batches without an end.
        test_data: held-out data, or None.
        loss: gives total and terms of a batch.
        optimizer: over the parameters that train.
        scheduled: whether the step size is the settings' own, not the given optimizer's.
        steps: updates to make.
    """

    spec: TrainingSpec
    model: nn.Module
    feed: Feed
    test_data: Any
    loss: losses.Loss
    optimizer: Optimizer
    scheduled: bool
    steps: int


def prepare(request: Request) -> Prepared:
    """Build what is only named. The global random state is left seeded for the forward passes.

    Raises:
        SpecError: If the settings do not fit the data.
        AdapterError: If model or data cannot be built.
        MeasurementError: If nothing of the model trains.
    """
    spec = request.spec
    randomness.seed_all(randomness.derived_seed(spec.seed, "model"))
    model = _place(request)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise MeasurementError(
            "the model has no trainable parameter", seen=spec.model, hint="check requires_grad"
        )
    randomness.seed_all(randomness.derived_seed(spec.seed, "data"))
    data = build_data(spec.data) if request.data is None else request.data
    test_data = request.test_data
    if test_data is None and spec.test_data is not None:
        test_data = build_data(spec.test_data)
    feed = Feed(data, batch_size=spec.batch_size, full_batch=spec.full_batch, seed=spec.seed)
    factory = request.optimizer
    optimizer = build_optimizer(model, spec) if factory is None else factory(model)
    loss = losses.resolve(spec.loss, model)
    steps = _steps(spec, feed)
    randomness.seed_all(randomness.derived_seed(spec.seed, "forward"))
    return Prepared(spec, model, feed, test_data, loss, optimizer, factory is None, steps)


def _place(request: Request) -> nn.Module:
    spec, live = request.spec, request.model
    if live is None:
        device = choose_device(spec.device)
        return build_model(spec.model).to(device=device, dtype=getattr(torch, spec.dtype))
    return live if spec.device == "auto" else live.to(choose_device(spec.device))


def _steps(spec: TrainingSpec, feed: Feed) -> int:
    if spec.epochs is None:
        return DEFAULT_STEPS if spec.steps is None else spec.steps
    if feed.batches_per_epoch is None:
        raise SpecError(
            "the data do not say how long an epoch is",
            seen=f"epochs={spec.epochs}",
            hint="give steps instead",
        )
    return spec.epochs * feed.batches_per_epoch
