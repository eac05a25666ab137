"""How well a model does on data it is not trained on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from landscape_cli import randomness
from landscape_cli.batches import Batch, map_tensors
from landscape_cli.errors import LandscapeError, MeasurementError
from landscape_cli.losses import IGNORED, Classification, Loss, logits


@dataclass(frozen=True)
class Score:
    """What an evaluation found.

    Attributes:
        loss: mean over the terms of all batches; the sum for ``sse``.
        accuracy: share of the targets that have the highest score; None where targets are no
            classes.
    """

    loss: float
    accuracy: float | None


def place(raw: Any, model: nn.Module, *, whole: bool) -> Batch:
    """Return a raw batch on the model's device, floating tensors in its type."""
    like = next(model.parameters())

    def move(tensor: Tensor) -> Tensor:
        return tensor.to(like.device, like.dtype if tensor.is_floating_point() else None)

    return Batch.split(map_tensors(raw, move), model, whole=whole)


def forward(model: nn.Module, batch: Batch) -> Any:
    """Return the model's output.

    Raises:
        MeasurementError: If the model raises an error.
    """
    try:
        return model(*batch.inputs, **batch.keywords)
    except LandscapeError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise MeasurementError(
            "the model raised an error in its forward pass",
            seen=f"{type(error).__name__}: {error}".splitlines()[0],
            hint="check that the data fit the model; --debug shows where",
        ) from error


def divisor(loss: Loss, terms: int) -> int:
    """Return what a total over so many terms is divided by."""
    return 1 if getattr(loss, "summed", False) else max(terms, 1)


def correct(loss: Loss, output: Any, batch: Batch) -> int | None:
    """Return how many class targets have the highest score; None where they are no classes."""
    target = batch.target
    if not isinstance(loss, Classification) or not isinstance(target, Tensor):
        return None
    if target.is_floating_point():
        return None
    scores = logits(output)
    last = scores.dim() > 2 and scores.shape[:-1] == target.shape
    found = scores.argmax(-1 if last else 1)
    answers = target.reshape(found.shape)
    return int(((found == answers) & (answers != IGNORED)).sum())


def evaluate(
    model: nn.Module, data: Dataset[Any] | Iterable[Any], loss: Loss, *, batch_size: int = 512
) -> Score:
    """Return loss and accuracy over all of the data, in evaluation mode, nothing changed.

    Args:
        model: on its device; its mode is put back, and so is the random state.
        data: a `Dataset`, or a finite iterable of batches.
        loss: as the training has it.
        batch_size: samples evaluated together.
    """
    total, terms, right, counted = 0.0, 0, 0, 0
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad(), randomness.preserved():
            for raw in _batches(data, batch_size):
                batch = place(raw, model, whole=loss.whole)
                output = forward(model, batch)
                total += float(loss.total(output, batch))
                count = loss.terms(batch)
                terms += count
                hits = correct(loss, output, batch)
                if hits is not None:
                    right, counted = right + hits, counted + count
    finally:
        for module, training in flags:
            module.training = training
    return Score(total / divisor(loss, terms), right / counted if counted else None)


def _batches(data: Any, batch_size: int) -> Iterable[Any]:
    if isinstance(data, Dataset):
        return DataLoader(data, batch_size, collate_fn=getattr(data, "collate_fn", None))
    batches: Iterable[Any] = data
    return batches
