"""The model adapter ``lightning``: ``--model 'lightning:FILE.py:Module?width=8'``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from landscape_cli.errors import AdapterError
from landscape_lightning import classes, hyperparameters

FORWARD = "forward"
STEPS = ("training_step", "validation_step", "test_step")


def build_model(
    target: str, *, checkpoint: str | None = None, objective: str = FORWARD, **options: Any
) -> nn.Module:
    """Return a LightningModule, made as it was trained.

    Args:
        target: ``FILE.py:CLASS``, or ``package.module:CLASS`` of an installed package.
        checkpoint: a ``.ckpt`` file whose recorded hyper-parameters are used where no option
            says otherwise. It is read without executing anything in it.
        objective: ``forward``: the model is called with the input, and ``--loss`` compares.
            ``training_step``, ``validation_step`` or ``test_step``: it is called with the batch
            and returns its own loss, for ``--loss model``.
        **options: keyword arguments of the class.

    Raises:
        AdapterError: If there is no such class or step, the checkpoint has no hyper-parameters,
            or the class does not take them.
    """
    if objective not in (FORWARD, *STEPS):
        raise AdapterError(
            f"the option 'objective' cannot be {objective!r}",
            seen=f"objective={objective}",
            hint=", ".join((FORWARD, *STEPS)),
        )
    kind = classes.load(target, "model")
    if not issubclass(kind, nn.Module):
        raise AdapterError(
            f"{kind.__name__} is not a LightningModule",
            seen=target,
            hint="--data lightning:… for a LightningDataModule",
        )
    module = classes.create(kind, hyperparameters.merge(kind, checkpoint, options))
    return module if objective == FORWARD else _own_loss(module, objective)


def _own_loss(module: nn.Module, step: str) -> nn.Module:
    """Let calling the module with a batch take one of its steps."""
    kind = type(module)
    if not callable(getattr(kind, step, None)):
        raise AdapterError(
            f"{kind.__name__} has no {step}", seen=f"objective={step}", hint="objective=forward"
        )
    names = {"landscape_step": step, "landscape_stepping": False}
    members = {**names, "forward": _take_step, "log": _ignore, "log_dict": _ignore}
    module.__class__ = type(kind.__name__, (kind,), members)
    return module


def _take_step(self: Any, *parts: Any, **named: Any) -> Any:
    """Stand for ``forward``: the step from outside, the module's own from inside the step."""
    kind: Any = type(self).__mro__[1]
    if self.landscape_stepping:
        return kind.forward(self, *parts, **named)
    batch = named or (parts[0] if len(parts) == 1 else parts)
    step = getattr(self, self.landscape_step)
    self.landscape_stepping = True
    try:
        return _loss_of(step(batch, 0) if _takes_index(step) else step(batch))
    finally:
        self.landscape_stepping = False


def _takes_index(step: Any) -> bool:
    try:
        inspect.signature(step).bind(None, 0)
    except TypeError:
        return False
    return True


def _loss_of(output: Any) -> Any:
    if isinstance(output, Mapping) and "loss" in output:
        return output["loss"]
    if output is None:
        raise AdapterError(
            "the step returned no loss",
            seen="None, as with manual optimisation",
            hint="objective=forward and a --loss",
        )
    return output


def _ignore(self: Any, *_: Any, **__: Any) -> None:
    """Log nothing: there is no trainer."""
