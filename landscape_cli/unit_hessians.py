"""The Hessian of the loss in the weights of single units, through the units' outputs.

A unit's outputs are a = Ĥŵ, linear in its weights ŵ = (bias, weights), so that its Hessian is
ĤᵀSĤ with S = ∂²L/∂a∂a (Lange et al. 2022, Propositions 2 and 9). S is never formed where the
examples do not interact: then it has one block per example, which all examples give at once.
Where they do, as behind batch statistics, it is multiplied column by column.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from landscape_cli.derivatives import twice_differentiable
from landscape_cli.design import by_unit
from landscape_cli.layers import CONVOLUTIONS, OutputTap
from landscape_cli.objective import Objective

CHUNK_ELEMENTS = 1 << 22
"""Numbers in the directions that are multiplied together."""
CHUNK_COLUMNS = 64
INTERACTION = 1e-12
"""Curvature between examples, relative to that within, under which they do not interact."""


class OutputCurvature:
    """S of the units of one layer, for one batch of an objective.

    Args:
        objective: open, at the point to measure.
        index: which batch.
        module: a dense or convolutional layer, used once in a forward pass.

    Attributes:
        batched: whether products are taken together, which saves launches and costs on a CPU.
        examples: on the outputs' first axis.
        positions: outputs of a unit per example.
        units: how many units the layer has.
    """

    def __init__(self, objective: Objective, index: int, module: nn.Module) -> None:
        self._module = module
        tap = OutputTap([module], lambda *_: None)
        with (
            twice_differentiable(),
            objective.still(index),
            torch.enable_grad(),
            tap.listen(index),
        ):
            value = objective.total_at(index, objective.parameters.tensors) / objective.divisor
        (self._at,) = tap.tensors()
        self.batched = self._at.is_cuda
        with twice_differentiable():
            (self._slope,) = torch.autograd.grad(
                value, self._at, create_graph=True, materialize_grads=True
            )
        self.examples, self.positions, self.units = by_unit(self._at.detach(), module).shape

    @property
    def rows(self) -> int:
        """How many outputs a unit has: examples times positions."""
        return self.examples * self.positions

    def identity(self) -> Tensor:
        """Return the columns that give S itself."""
        return torch.eye(self.rows, dtype=torch.float64, device=self._at.device)

    @cached_property
    def interacts(self) -> bool:
        """Whether the gradient at one example's outputs depends on another's.

        Every pair of examples is told apart by a bit of their numbers; for each bit, those that
        have it are moved at random and the others must not notice.
        """
        numbers = torch.arange(self.examples)
        generator = torch.Generator().manual_seed(0)
        shape = (self.examples, self.positions, self.units)
        moves = torch.randn(shape, generator=generator, dtype=torch.float64).to(self._at.device)
        for bit in range((self.examples - 1).bit_length()):
            moved = ((numbers >> bit) & 1).bool().to(moves.device)
            direction = torch.where(moved[:, None, None], moves, 0.0)
            (noticed,) = _by_unit(self._multiply(self._laid_out(direction[None])), self._module)
            within, across = noticed[moved].abs().max(), noticed[~moved].abs().max()
            if across > INTERACTION * within:
                return True
        return False

    def blocks(self, units: Sequence[int]) -> Tensor:
        """Return S of every unit as its blocks, shape (units, examples, positions, positions).

        Only where the examples do not interact: one product per unit and position.
        """
        eye = torch.eye(self.positions, dtype=torch.float64, device=self._at.device)
        columns = eye.repeat(self.examples, 1)
        products = self.products(units, columns)
        return products.reshape(len(units), self.examples, self.positions, self.positions)

    def products(self, units: Sequence[int], columns: Tensor) -> Tensor:
        """Return S·C of every unit, shape (units, rows, columns).

        Args:
            units: which units.
            columns: C, shape (rows, columns).
        """
        count = columns.shape[1]
        found = columns.new_empty(len(units), count, self.rows)
        pairs = [(i, column) for i in range(len(units)) for column in range(count)]
        for chunk in self._chunks(pairs):
            directions = columns.new_zeros(len(chunk), self.examples, self.positions, self.units)
            for k, (i, column) in enumerate(chunk):
                shaped = columns[:, column].reshape(self.examples, self.positions)
                directions[k, :, :, units[i]] = shaped
            curved = _by_unit(self._multiply(self._laid_out(directions)), self._module)
            for k, (i, column) in enumerate(chunk):
                found[i, column] = curved[k, :, :, units[i]].reshape(-1)
        return found.transpose(1, 2)

    def _chunks(self, pairs: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
        size = max(1, min(CHUNK_COLUMNS, CHUNK_ELEMENTS // max(1, self._at.numel())))
        for start in range(0, len(pairs), size):
            yield pairs[start : start + size]

    def _laid_out(self, directions: Tensor) -> Tensor:
        """Return (K, N, positions, units) in the layout of the outputs, (K, *outputs)."""
        if isinstance(self._module, CONVOLUTIONS):
            directions = directions.transpose(2, 3)
        return directions.reshape(len(directions), *self._at.shape)

    def _multiply(self, directions: Tensor) -> Tensor:
        """Return the Hessian by all outputs times each of K directions, (K, *outputs)."""
        if not self._slope.requires_grad:
            return torch.zeros_like(directions)
        if self.batched:
            try:
                return self._differentiate(directions, batched=True)
            except RuntimeError:  # an operation that cannot be batched
                self.batched = False
        rows = [self._differentiate(direction, batched=False) for direction in directions]
        return torch.stack(rows)

    def _differentiate(self, directions: Tensor, *, batched: bool) -> Tensor:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*performance drop.*")
            (product,) = torch.autograd.grad(
                self._slope,
                self._at,
                grad_outputs=directions,
                retain_graph=True,
                is_grads_batched=batched,
                materialize_grads=True,
            )
        return product.detach()


def _by_unit(values: Tensor, module: nn.Module) -> Tensor:
    """Return K outputs of a layer, (K, *outputs), as (K, N, positions, units)."""
    return torch.stack([by_unit(value, module) for value in values])
