"""The compressed strategy: a linear chain with a squared loss sees few directions of the samples.

With A = [1 | X | Y] (n samples, a column of ones, inputs, targets) and A = QR, every hidden value
of a linear chain, also one with batch normalisation, is a combination of the columns of A; losses
and gradients are inner products of such combinations, and Q preserves those. So R, which has no
more rows than A has columns, stands for the n samples exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from landscape_cli.batches import Batch
from landscape_cli.engine.chain import read_chain
from landscape_cli.engine.chunks import ChunkedSweep
from landscape_cli.engine.dense import DenseEvaluation
from landscape_cli.engine.lanes import free_lanes
from landscape_cli.engine.samples import Samples
from landscape_cli.engine.strategy import FIRST_CHUNK, Slice, doubled
from landscape_cli.losses import Elementwise
from landscape_cli.objective import Objective
from landscape_cli.site import Site


class Compressed:
    """Evaluate K points of a linear chain on a few samples that stand for all of them."""

    name: ClassVar[str] = "compressed"
    summary: ClassVar[str] = (
        "the samples of a linear chain compressed exactly by a QR decomposition"
    )

    def refusal(self, site: Site, slice_: Slice) -> str:
        """Refuse all but linear chains with a squared loss and many samples."""
        if slice_.observers:
            return "measures watch the points one by one"
        loss = site.objective.loss
        if not (isinstance(loss, Elementwise) and loss.function is F.mse_loss):
            return "the loss is not a sum of squares"
        try:
            chain = read_chain(site.objective)
        except ValueError as reason:
            return f"the model is not a linear chain: {reason}"
        if not chain.linear:
            return "the model is not a linear chain: it has an activation"
        return _size_refusal(site.objective)

    def promises(self, site: Site, seconds: float, points: int) -> bool:  # noqa: ARG002
        """Fewer samples are always less work."""
        return True

    def chunks(self, site: Site, most: int) -> Iterator[int]:  # noqa: ARG002
        """Try more and more points together."""
        return doubled(min(FIRST_CHUNK, most), most)

    def prepare(self, site: Site, slice_: Slice, *, chunk: int = 1) -> ChunkedSweep:
        """Make a slice ready."""
        chain = read_chain(site.objective)
        objective = site.objective
        if objective not in _COMPRESSED:
            together = not chain.normalised
            _COMPRESSED[objective] = compress(objective.batches, together=together)
        samples = _COMPRESSED[objective]
        evaluation = DenseEvaluation(site, slice_, chain, samples)
        return ChunkedSweep(slice_, evaluation, chunk, lanes=free_lanes(site, chunk))


_COMPRESSED: WeakKeyDictionary[Objective, list[Samples]] = WeakKeyDictionary()
"""What stands for an objective's samples, the same for every line at its checkpoint."""


def _size_refusal(objective: Objective) -> str:
    for batch in objective.batches:
        target = batch.target
        count = batch.inputs[0].shape[0]
        if not isinstance(target, Tensor) or target.numel() % count:
            return "the targets are not one row per sample"
        columns = 1 + batch.inputs[0].flatten(1).shape[1] + target.numel() // count
        if columns >= count:
            return f"{count} samples are no more than the {columns} columns that stand for them"
    return ""


def compress(batches: Sequence[Batch], *, together: bool) -> list[Samples]:
    """Return the samples that stand for the batches: R of [1 | X | Y] = QR.

    Computed in float64, exact up to rounding.

    Args:
        batches: each with a matrix as its input, after flattening, and one row of targets a sample.
        together: whether one set of samples may stand for all batches, as where no layer looks at
            a batch as a whole.
    """
    tables = [_triangle(_table(batch)) for batch in batches]
    counts = [batch.inputs[0].shape[0] for batch in batches]
    if together:
        tables, counts = [_triangle(torch.cat(tables))], [sum(counts)]
    pairs = zip(tables, batches, counts, strict=False)
    return [_samples(table, batch, count) for table, batch, count in pairs]


def _table(batch: Batch) -> Tensor:
    """Return [1 | X | Y], float64 of shape (samples, 1 + inputs + targets)."""
    inputs = batch.inputs[0].flatten(1)
    target = batch.target.to(inputs.dtype).reshape(len(inputs), -1)
    ones = inputs.new_ones(len(inputs), 1)
    return torch.cat([ones, inputs, target], dim=1).double()


def _triangle(table: Tensor) -> Tensor:
    triangle: Tensor = torch.linalg.qr(table, mode="r")[1]
    return triangle


def _samples(table: Tensor, batch: Batch, count: int) -> Samples:
    inputs = batch.inputs[0].flatten(1)
    columns = table.to(inputs.dtype).T.contiguous()
    end = 1 + inputs.shape[1]
    return Samples(columns[1:end], batch, columns[0], columns[end:], count)
