"""Batches cut into smaller ones, where no sample sees the others: the same L, in less memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from landscape_cli.batches import Batch, map_tensors, tensors_in
from landscape_cli.errors import MeasurementError
from landscape_cli.norm_layers import batch_layers
from landscape_cli.objective import Objective
from landscape_cli.specs import NormMode


def split(
    batches: Sequence[Batch], size: int, model: nn.Module, *, whole: bool, norm_mode: NormMode
) -> tuple[Batch, ...]:
    """Return batches of at most `size` samples that have the same L and ∇L together.

    Raises:
        MeasurementError: If a layer normalises over the batch, or a batch cannot be cut.
    """
    layers = list(batch_layers(model))
    if layers and norm_mode != "running":
        raise MeasurementError(
            "a batch of a network with batch statistics cannot be split",
            seen=f"--micro-batch {size}, {len(layers)} norm layers such as {layers[0]}",
            hint="leave --micro-batch out, or --norm-mode running",
        )
    return tuple(part for batch in batches for part in _cut(batch, size, model, whole=whole))


def _cut(batch: Batch, size: int, model: nn.Module, *, whole: bool) -> list[Batch]:
    if batch.size <= size:
        return [batch]
    if any(t.dim() == 0 or t.shape[0] != batch.size for t in tensors_in(batch.raw)):
        raise MeasurementError(
            "a batch cannot be cut into samples",
            seen=", ".join(str(tuple(t.shape)) for t in tensors_in(batch.raw)[:4]),
            hint="tensors with the samples on the first axis, or no --micro-batch",
        )
    parts = []
    for start in range(0, batch.size, size):
        raw = map_tensors(batch.raw, lambda t, s=start: t[s : s + size])  # type: ignore[misc]
        parts.append(Batch.split(raw, model, whole=whole))
    return parts


def check_independence(objective: Objective) -> None:
    """Compare the loss of two micro-batches with that of both as one batch.

    Raises:
        MeasurementError: If they differ by more than rounding: samples see each other.
    """
    if objective.draws_random or len(objective.batches) < 2:
        return
    first, second = objective.batches[:2]
    joined = _join(first, second, objective)
    if joined is None:
        return
    apart = sum(float(total) for total in _totals(objective, [first, second]))
    together = float(_totals(objective, [joined])[0])
    tolerance = torch.finfo(objective.parameters.dtype).eps ** 0.5
    if not abs(apart - together) <= tolerance * max(abs(together), 1.0):
        raise MeasurementError(
            "samples of a batch influence each other, so that it cannot be split",
            seen=f"loss {together:.6g} of two micro-batches together, {apart:.6g} apart",
            hint="leave --micro-batch out",
        )


def _join(first: Batch, second: Batch, objective: Objective) -> Batch | None:
    others = iter(tensors_in(second.raw))

    def extend(tensor: Tensor) -> Tensor:
        return torch.cat([tensor, next(others)])

    raw = map_tensors(first.raw, extend)
    return Batch.split(raw, objective.model, whole=objective.loss.whole)


def _totals(objective: Objective, batches: Sequence[Batch]) -> list[Tensor]:
    with torch.no_grad():
        return [objective.total_of(batch) for batch in batches]
