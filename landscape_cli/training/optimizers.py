"""The optimizers that a training can be given by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from landscape_cli.errors import LandscapeError, SpecError
from landscape_cli.specs import parse_options
from landscape_cli.training.spec import TrainingSpec

Factory = Callable[[nn.Module], Optimizer]
"""What may be given instead of a name: makes the optimizer of a model."""


def build_optimizer(model: nn.Module, spec: TrainingSpec) -> Optimizer:
    """Return the optimizer that the spec names, over the parameters that train.

    Raises:
        SpecError: If there is none of that name, or it refuses an option.
    """
    name, _, query = spec.optimizer.partition("?")
    makers = {"sgd": _sgd, "adam": _adam, "adamw": _adamw, "bnp": _bnp}
    if name not in makers:
        raise SpecError(
            f"no optimizer is named {name!r}", seen=spec.optimizer, hint=", ".join(makers)
        )
    options = parse_options(query, spec.optimizer, "optimizer")
    try:
        return makers[name](model, spec, options)
    except LandscapeError:
        raise
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"the optimizer {name!r} refuses its options", seen=spec.optimizer, hint=str(error)
        ) from None


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _sgd(model: nn.Module, spec: TrainingSpec, options: dict[str, Any]) -> Optimizer:
    given = {"momentum": spec.momentum, "weight_decay": spec.weight_decay, **options}
    return torch.optim.SGD(_trainable(model), lr=spec.lr, **given)


def _adam(model: nn.Module, spec: TrainingSpec, options: dict[str, Any]) -> Optimizer:
    _refuse_momentum(spec)
    given = {"weight_decay": spec.weight_decay, **options}
    return torch.optim.Adam(_trainable(model), lr=spec.lr, **given)


def _adamw(model: nn.Module, spec: TrainingSpec, options: dict[str, Any]) -> Optimizer:
    _refuse_momentum(spec)
    given = {"weight_decay": spec.weight_decay, **options}
    return torch.optim.AdamW(_trainable(model), lr=spec.lr, **given)


def _bnp(model: nn.Module, spec: TrainingSpec, options: dict[str, Any]) -> Optimizer:
    from sample_models.optim import BNP  # only this optimizer needs the sample models

    optimizer = _sgd(model, spec, {})
    BNP(model, optimizer, **options)
    return optimizer


def _refuse_momentum(spec: TrainingSpec) -> None:
    if spec.momentum:
        raise SpecError(
            "this optimizer has no momentum of its own",
            seen=f"{spec.optimizer}, momentum={spec.momentum}",
            hint="adam?betas=(0.9,0.999)",
        )
