"""Samples with their features first, and the losses of many outputs for them at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from landscape_cli.batches import Batch
from landscape_cli.losses import IGNORED, Classification, Elementwise, Loss
from landscape_cli.objective import Objective


@dataclass(frozen=True)
class Samples:
    """One batch, features first.

    Attributes:
        inputs: X, shape (features, n).
        batch: what the loss compares the output with.
        ones: the vector that a bias multiplies, shape (n,); None for a vector of ones.
        target: the target, shape (outputs, n), where the samples are not the batch's own.
        count: how many samples a mean over the batch is over.
    """

    inputs: Tensor
    batch: Batch
    ones: Tensor | None
    target: Tensor | None
    count: int


def loss_and_slope(
    values: Tensor, samples: Samples, objective: Objective, *, wanted: bool
) -> tuple[Tensor, Tensor]:
    """Return the losses of K points, and their derivatives by the outputs where wanted."""
    loss, divisor = objective.loss, objective.divisor
    if isinstance(loss, Elementwise) and loss.function is F.mse_loss:
        target = samples.target if samples.target is not None else _matching(values, samples.batch)
        if target is not None:
            residuals = values - target
            losses = torch.linalg.vector_norm(residuals.double().flatten(1), dim=1).square()
            return losses / divisor, residuals.mul_(2 / divisor)
    with torch.set_grad_enabled(wanted):
        leaf = values.detach().requires_grad_(wanted)
        losses = _totals(leaf, samples.batch, loss) / divisor
        slope = torch.autograd.grad(losses.sum(), leaf)[0] if wanted else values
    return losses.detach(), slope


def _totals(values: Tensor, batch: Batch, loss: Loss) -> Tensor:
    """Return the summed losses of K points, float64."""
    target = batch.target
    labels = isinstance(target, Tensor) and target.dim() == 1 and not target.is_floating_point()
    if isinstance(loss, Classification) and labels:
        repeated = target.long().expand(len(values), -1)
        terms = loss.function(values, repeated, reduction="none", ignore_index=IGNORED)
        return terms.sum(dim=1, dtype=torch.float64)
    each = vmap(lambda output: loss.total(output, batch))
    totals: Tensor = each(values.transpose(1, 2))
    return totals


def _matching(values: Tensor, batch: Batch) -> Tensor | None:
    """Return the target features first, where it has as many numbers as the output."""
    target = batch.target
    _, features, count = values.shape
    if not isinstance(target, Tensor) or target.numel() != features * count:
        return None
    if target.dim() == 2 and tuple(target.shape) != (count, features):
        return None
    return target.to(values.dtype).reshape(count, features).T.contiguous()
