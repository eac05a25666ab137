"""The stacked strategy: K points in one batched evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from landscape_cli.batches import Batch
from landscape_cli.engine.chain import Chain, read_chain
from landscape_cli.engine.chunks import (
    ChunkedSweep,
    columns_of,
    loss_columns,
    row_distances,
    row_sums,
)
from landscape_cli.engine.dense import DenseEvaluation
from landscape_cli.engine.lanes import free_lanes
from landscape_cli.engine.samples import Samples
from landscape_cli.engine.strategy import FIRST_CHUNK, Slice, doubled
from landscape_cli.site import Site

SMALL_SECONDS = 2e-3
"""Seconds a point up to which a model that is no dense chain is tried stacked on a CPU."""


class Stacked:
    """Evaluate K points together: dense chains features first, other models under vmap."""

    name: ClassVar[str] = "stacked"
    summary: ClassVar[str] = "several points in one batched evaluation"

    def refusal(self, site: Site, slice_: Slice) -> str:
        """Refuse what cannot be batched over points."""
        if slice_.observers:
            return "measures watch the points one by one"
        if site.objective.volatile_buffers:
            return "the forward pass changes buffers"
        if len({tensor.device for tensor in site.parameters.tensors}) > 1:
            return "the model lies on several devices"
        return ""

    def promises(self, site: Site, seconds: float, points: int) -> bool:  # noqa: ARG002
        """Dense chains and GPUs gain; under vmap a CPU gains where operations are small."""
        return _is_chain(site) or site.parameters.device.type != "cpu" or seconds <= SMALL_SECONDS

    def chunks(self, site: Site, most: int) -> Iterator[int]:  # noqa: ARG002
        """Try more and more points together."""
        return doubled(min(FIRST_CHUNK, most), most)

    def prepare(self, site: Site, slice_: Slice, *, chunk: int = 1) -> ChunkedSweep:
        """Make a slice ready."""
        try:
            chain = read_chain(site.objective)
        except ValueError:
            return ChunkedSweep(slice_, MappedEvaluation(site, slice_), chunk)
        samples = [features_first(batch) for batch in site.objective.batches]
        evaluation = DenseEvaluation(site, slice_, chain, samples)
        return ChunkedSweep(slice_, evaluation, chunk, lanes=free_lanes(site, chunk))


def _is_chain(site: Site) -> bool:
    try:
        read_chain(site.objective)
    except ValueError:
        return False
    return True


def features_first(batch: Batch) -> Samples:
    """Return a batch with its input flattened and transposed, shape (features, n)."""
    inputs = batch.inputs[0].flatten(1)
    return Samples(inputs.T.contiguous(), batch, None, None, len(inputs))


def describe_chain(site: Site) -> str:
    """Return in one line what the model is to this strategy."""
    try:
        chain: Chain = read_chain(site.objective)
    except ValueError as reason:
        return f"not a dense chain: {reason}"
    return f"a dense chain of {len(chain.steps)} steps"


class MappedEvaluation:
    """Evaluates points of any model: its forward pass under vmap, then one backward pass."""

    def __init__(self, site: Site, slice_: Slice) -> None:
        self._objective = site.objective
        self._origin = site.parameters.origin
        self._directions = slice_.directions
        self._gradients = slice_.gradients
        flat = [tensor.double().reshape(-1) for tensor in site.gradient]
        self._reference = torch.cat(flat) if slice_.gradients else None

    def __call__(self, points: np.ndarray) -> Tensor:
        """Return the columns of K points, float64 of shape (K, 5)."""
        weights = self._weights(points)
        losses, gradients = self._differentiate(weights)
        if gradients is None or self._reference is None:
            return loss_columns(losses)
        sums = row_sums(_rows(gradients), self._reference)
        origin = torch.cat([tensor.reshape(-1) for tensor in self._origin])
        distances = row_distances(_rows([w.detach() for w in weights]), origin)
        return columns_of(losses, sums, distances)

    def _weights(self, points: np.ndarray) -> list[Tensor]:
        """Return θ of K points, each tensor with the points on its first axis."""
        weights = []
        for position, origin in enumerate(self._origin):
            steps = torch.from_numpy(points).to(origin.device, origin.dtype)
            shape = (len(points), *[1] * origin.dim())
            moved = origin.expand(len(points), *origin.shape)
            for index, direction in enumerate(self._directions):
                factor = steps[:, index].reshape(shape)
                moved = torch.addcmul(moved, factor, direction[position], value=-1)
            weights.append(moved.requires_grad_(self._gradients))
        return weights

    def _differentiate(self, weights: list[Tensor]) -> tuple[Tensor, list[Tensor] | None]:
        objective, count = self._objective, len(weights[0])
        losses = torch.zeros(count, dtype=torch.float64, device=weights[0].device)
        total: list[Tensor] | None = None
        for index in range(len(objective.batches)):
            with torch.set_grad_enabled(self._gradients), objective.still(index):
                shares = self._totals(index, weights) / objective.divisor
            losses += shares.detach()
            if self._gradients:
                total = _accumulate(total, shares, weights)
        return losses, total

    def _totals(self, index: int, weights: list[Tensor]) -> Tensor:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def one(*tensors: Tensor) -> Tensor:
            return self._objective.total_at(index, tensors)

        with sdpa_kernel(SDPBackend.MATH):
            totals: Tensor = vmap(one, randomness="same")(*weights)
        return totals


def _accumulate(total: list[Tensor] | None, shares: Tensor, weights: list[Tensor]) -> list[Tensor]:
    """Add the gradient of a batch's shares to the total; zeros where the loss does not reach."""
    found: tuple[Tensor | None, ...] = (None,) * len(weights)
    if shares.requires_grad:
        found = torch.autograd.grad(shares.sum(), weights, allow_unused=True)
    part = [torch.zeros_like(w) if g is None else g for g, w in zip(found, weights, strict=True)]
    if total is not None:
        torch._foreach_add_(total, part)
        return total
    return part


def _rows(tensors: list[Tensor]) -> Tensor:
    """Return K points' tensors as K rows."""
    return torch.cat([tensor.reshape(len(tensor), -1) for tensor in tensors], dim=1)
