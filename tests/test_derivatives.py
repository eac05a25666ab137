from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from landscape_cli.derivatives import Sum, gradients, hessian_product


class Cube(torch.autograd.Function):
    """x³, whose first derivative ends in a node of our own, and can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return Square.apply(x) * 3 * slope


class Square(torch.autograd.Function):
    """x², with a node of our own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * slope


class Last(torch.autograd.Function):
    """The identity, the last node of whose gradient is a Python one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        return Last.apply(slope)


def test_a_graph_that_ends_in_a_python_function_is_kept_alive() -> None:
    x = torch.tensor([1.0, 2.0, -3.0], dtype=torch.float64, requires_grad=True)
    vector = [torch.tensor([1.0, -1.0, 2.0], dtype=torch.float64)]
    (product,) = hessian_product(Cube.apply(Last.apply(x)).sum(), [x], vector)
    assert product is not None
    # The Hessian of Σ x³ is 6 x on the diagonal.
    torch.testing.assert_close(product, 6 * x.detach() * vector[0], rtol=1e-15, atol=0)


def test_what_a_scalar_does_not_bend_along_has_no_second_derivative() -> None:
    x, y, z = (torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(3))

    def value() -> Tensor:
        return (x**2).sum() + y.sum()

    assert [g is None for g in gradients(value(), [x, y, z])] == [False, False, True]
    ones = [torch.ones(2, dtype=torch.float64)] * 3
    first, *others = hessian_product(value(), [x, y, z], ones)
    assert first is not None
    assert first.tolist() == [2, 2]
    assert others == [None, None]
    assert hessian_product(y.sum(), [x, y], ones[:2]) == [None, None]
    assert hessian_product(torch.zeros(()), [x], ones[:1]) == [None]


def test_a_first_derivative_that_is_cut_off_is_refused() -> None:
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, slope: Tensor) -> Tensor:
            return slope

    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        hessian_product((Once.apply(x) ** 2).sum(), [x], [torch.ones(2)])


def test_a_sum_writes_to_nothing_but_its_own() -> None:
    shared = torch.ones(2)
    total = Sum(3)
    total.add([shared, shared, None])
    for _ in range(2):
        total.add([torch.ones(2), None, torch.ones(2)])
    first, second, third = total.tensors
    assert first is not None and second is not None and third is not None  # noqa: PT018
    assert (first.tolist(), second.tolist(), third.tolist()) == ([3, 3], [1, 1], [2, 2])
    assert shared.tolist() == [1, 1]


def test_a_sum_empties_the_list_it_is_given() -> None:
    part: list[Tensor | None] = [torch.ones(2)]
    Sum(1).add(part)
    assert part == [None]
