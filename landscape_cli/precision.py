"""An objective once more in float64, where the run's own type would hide what is measured."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from landscape_cli.batches import Batch, map_tensors
from landscape_cli.errors import MeasurementError
from landscape_cli.objective import Objective
from landscape_cli.prefetch import Prefetched


@contextmanager
def in_float64(objective: Objective) -> Iterator[Objective]:
    """Yield the objective with weights, buffers and batches in float64, opened.

    An objective that is in float64 is yielded as it is. Of any other a copy is made, so that
    the model itself is not touched; what the forward pass draws may differ from what it draws
    in the narrower type.

    Raises:
        MeasurementError: If the model cannot be copied, or the copy cannot be evaluated.
    """
    if all(tensor.dtype == torch.float64 for tensor in objective.parameters.tensors):
        yield objective
        return
    model = _widened(objective.model)
    wide = Objective(
        model,
        _widened_batches(objective, model),
        objective.loss,
        norm_mode=objective.norm_mode,
        seed=objective.seed,
    )
    with wide:
        yield wide


def _widened(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model).double()
    except (RuntimeError, TypeError) as error:
        raise MeasurementError(
            "the model cannot be copied into float64",
            seen=str(error).splitlines()[0],
            hint="run with --dtype float64 instead",
        ) from error


def _widened_batches(objective: Objective, model: nn.Module) -> Sequence[Batch]:
    if isinstance(objective.batches, Prefetched):
        return objective.batches.changed(_widen, model)
    raws = [map_tensors(batch.raw, _widen) for batch in objective.batches]
    return [Batch.split(raw, model, whole=objective.loss.whole) for raw in raws]


def _widen(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
