"""What is summed over θ at every point of a sweep, fast, and as exact as sums in float64.

Stretches of a few thousand elements are summed in float32, whose error is then that of rounding a
number once or twice, and put together in float64. Where squares could have left the range of
float32, everything is summed again in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from landscape_cli.parameters import Parameters, Tensors, gradient_sums

STRETCH = 4096
"""Elements that are summed in float32."""
JOINED = 1 << 20
"""Parameters up to which all tensors are joined into one: many small ones cost more than a copy."""
BLOCK = 1 << 16
"""Elements of a large tensor that are worked on together, so that they stay in the cache."""
SMALLEST_SQUARE, LARGEST_SQUARE = 1e-24, 1e30
"""Squared norms between which the squares of elements that matter are well inside float32."""


def in_range(squares: Tensor) -> bool:
    """Whether squared norms that were summed in float32 neither overflowed nor underflowed."""
    return bool(((squares > SMALLEST_SQUARE) & (squares < LARGEST_SQUARE)).all())


class PointSums:
    """‖∇L‖², ‖∇L − g‖², ⟨∇L, g⟩ and ‖θ − θ₀‖² at one point after the other.

    Args:
        parameters: θ, at the point, and θ₀.
        reference: g, shaped as the parameters.

    Example:
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> sums = PointSums(Parameters(model), [torch.ones(1, 2)])
        >>> sums.of_gradient([torch.full((1, 2), 3.0)]).round(decimals=5)
        tensor([18.,  8.,  6.], dtype=torch.float64)
    """

    def __init__(self, parameters: Parameters, reference: Tensors) -> None:
        self._parameters, self._reference = parameters, reference
        tensors = parameters.tensors
        self._narrow = all(t.dtype == torch.float32 and not t.is_cuda for t in tensors)
        self._joined = self._narrow and parameters.count <= JOINED
        if self._joined:
            self._order = _Order(tensors)
            self._reference_joined = self._order.join(reference)
            self._origin_joined = self._order.join(parameters.origin)
            places = self._order.flatten([tensor.detach() for tensor in tensors])
            views = all(p.data_ptr() == t.data_ptr() for p, t in zip(places, tensors, strict=True))
            self._places = places if views else []

    def of_gradient(self, gradient: Tensors) -> Tensor:
        """Return (‖∇L‖², ‖∇L − g‖², ⟨∇L, g⟩); float64, shape (3,)."""
        if not self._narrow:
            return gradient_sums(gradient, self._reference)
        if not self._joined:
            return torch.stack([self.of_tensor(i, g) for i, g in enumerate(gradient)]).sum(dim=0)
        sums = _sums(self._order.join(gradient), self._reference_joined)
        return sums if in_range(sums[:2]) else gradient_sums(gradient, self._reference)

    def of_tensor(self, position: int, gradient: Tensor) -> Tensor:
        """Return the share of one tensor in what `of_gradient` returns."""
        reference = self._reference[position]
        if self._narrow and reference.numel():
            sums = torch.zeros(3, dtype=torch.float64)
            for x, r in zip(*_blocks(gradient, reference), strict=True):
                sums += _sums(x, r)  # what is kept of a block would break up the heap
            if in_range(sums[:2]):
                return sums
        return gradient_sums([gradient], [reference])

    def of_distance(self) -> Tensor:
        """Return ‖θ − θ₀‖₂² as θ was moved, after rounding; float64, shape ()."""
        if self._narrow:
            squared = torch.zeros((), dtype=torch.float64)
            for x, o in self._moved():
                squared += _square(x - o)
            if in_range(squared):
                return squared
        return self._parameters.squared_distance()

    def _moved(self) -> Iterator[tuple[Tensor, Tensor]]:
        tensors = [tensor.detach() for tensor in self._parameters.tensors]
        if self._joined:
            yield torch.cat(self._places or self._order.flatten(tensors)), self._origin_joined
            return
        for tensor, origin in zip(tensors, self._parameters.origin, strict=True):
            yield from zip(*_blocks(tensor, origin), strict=True)


class _Order:
    """The order in which the elements of all tensors follow each other: that of their memory."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._permuted = [
            tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
            for tensor in tensors
        ]

    def flatten(self, tensors: Tensors) -> list[Tensor]:
        return [
            (tensor.permute(0, 2, 3, 1) if permuted else tensor).reshape(-1)
            for tensor, permuted in zip(tensors, self._permuted, strict=True)
        ]

    def join(self, tensors: Tensors) -> Tensor:
        return torch.cat(self.flatten(tensors))


def _blocks(first: Tensor, second: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the flat pieces of two tensors of one shape, each in the order of the second."""
    order = _Order([second])
    for tensor in (first, second):
        (flat,) = order.flatten([tensor])
        yield torch.split(flat, BLOCK)


def _sums(x: Tensor, r: Tensor) -> Tensor:
    """Return (‖x‖², ‖x − r‖², ⟨x, r⟩) of flat tensors in float32; float64, shape (3,)."""
    products = [rows.sum(dim=1).double().sum() for rows in _stretches(x * r)]
    return torch.stack([_square(x), _square(x - r), sum(products[1:], products[0])])


def _square(x: Tensor) -> Tensor:
    """Return ‖x‖₂² of a flat tensor in float32; float64, shape ()."""
    norms = [torch.linalg.vector_norm(rows, dim=1).double() for rows in _stretches(x)]
    squares = [torch.dot(norm, norm) for norm in norms]
    return sum(squares[1:], squares[0])


def _stretches(x: Tensor) -> Iterator[Tensor]:
    """Yield a flat tensor as rows: the whole stretches, and what is left over as one row."""
    whole = len(x) - len(x) % STRETCH
    if whole:
        yield x[:whole].view(-1, STRETCH)
    if whole < len(x) or not whole:
        yield x[whole:].view(1, -1)
