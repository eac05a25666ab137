"""Derivatives of a scalar by many tensors, in as few copies of the tensors as they can be had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

Reduction = Callable[[int, Tensor | None], None]
"""Takes the gradient by the tensor at a position; None where the scalar does not depend on it."""


def gradients(
    value: Tensor, tensors: Sequence[Tensor], *, create_graph: bool = False
) -> list[Tensor | None]:
    """Return the gradient by every tensor; None where `value` does not depend on it."""
    if not value.requires_grad:
        return [None] * len(tensors)
    return list(
        torch.autograd.grad(value, list(tensors), create_graph=create_graph, allow_unused=True)
    )


def hessian_product(
    value: Tensor, tensors: Sequence[Tensor], vector: Iterable[Tensor]
) -> list[Tensor | None]:
    """Return H·v, where H is the second derivative of `value` by the tensors.

    One copy of the tensors is held beside v: the first gradient is let go before the second
    derivative is taken, of which only its graph is needed.

    Args:
        value: a scalar with its graph, of shape ().
        tensors: what to differentiate by.
        vector: v, shaped as the tensors.

    Raises:
        RuntimeError: If an operation has no second derivative.
    """
    edges = _edges(gradients(value, tensors, create_graph=True))
    reached = [(edge, v) for edge, v in zip(edges, vector, strict=True) if edge is not None]
    if not reached:
        return [None] * len(tensors)
    refuse_once_differentiable(edge.node for edge, _ in reached)
    return list(
        torch.autograd.grad(
            [edge for edge, _ in reached],
            list(tensors),
            grad_outputs=[v for _, v in reached],
            allow_unused=True,
        )
    )


def _edges(found: list[Tensor | None]) -> list[GradientEdge | None]:
    """Return where the graphs of the tensors begin, which are no longer needed then."""
    # The node of a view is torch's own, and keeps a graph alive that ends in anybody's function.
    with torch.enable_grad():
        return [
            None if g is None or not g.requires_grad else get_gradient_edge(g.view_as(g))
            for g in found
        ]


def refuse_once_differentiable(nodes: Iterable[Any]) -> None:
    """Raise where autograd would take a derivative for constant, as its function has no second.

    Torch marks such a place with a node that raises when it is reached; asked for the gradient by
    given tensors alone, it never gets there.

    Args:
        nodes: where the graph of the first derivatives begins.

    Raises:
        RuntimeError: If there is such a place.
    """
    waiting, seen = list(nodes), set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if node.name() == "torch::autograd::Error":
            raise RuntimeError("a function marked once_differentiable")
        seen.add(node)
        waiting.extend(following for following, _ in node.next_functions)


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Choose implementations that have a second derivative."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH), torch.backends.cudnn.flags(enabled=False):
        yield


@contextmanager
def set_aside(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Keep the gradients that somebody accumulated in the tensors out of the way."""
    kept = [tensor.grad for tensor in tensors]
    for tensor in tensors:
        tensor.grad = None
    try:
        yield
    finally:
        for tensor, gradient in zip(tensors, kept, strict=True):
            tensor.grad = gradient


@contextmanager
def handed_over(tensors: Sequence[Tensor], reduce: Reduction) -> Iterator[None]:
    """Hand what accumulates in the tensors during one backward pass to `reduce`, and let go of it.

    `reduce` is called once for every position: as soon as the gradient is complete, or on
    leaving for what the pass did not reach, with what had accumulated before.
    """
    waiting = set(range(len(tensors)))

    def hand_over(position: int, tensor: Tensor) -> None:
        gradient, tensor.grad = tensor.grad, None
        waiting.discard(position)
        reduce(position, gradient)

    with ExitStack() as stack:
        for position, tensor in enumerate(tensors):
            hook = tensor.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                partial(hand_over, position)
            )
            stack.callback(hook.remove)
        yield
    for position in sorted(waiting):
        hand_over(position, tensors[position])


class Sum:
    """Tensors of θ added up over batches, in place as soon as they are its own.

    What autograd returned is not written to: two tensors of θ may have been given the same
    memory, as those of which a model only uses the sum.

    Attributes:
        tensors: the sums; None where nothing was added.
    """

    def __init__(self, count: int) -> None:
        self.tensors: list[Tensor | None] = [None] * count
        self._own = [False] * count

    def add(self, part: list[Tensor | None]) -> None:
        """Add one batch's part, and empty the list it came in."""
        for position in range(len(part)):
            new, part[position] = part[position], None
            old = self.tensors[position]
            if old is None or new is None:
                self.tensors[position] = new if old is None else old
                continue
            self.tensors[position] = old.add_(new) if self._own[position] else old + new
            self._own[position] = True
