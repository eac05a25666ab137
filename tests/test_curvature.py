from __future__ import annotations

import cases
import pytest
import torch
from sites import surveyed

from landscape_cli.curvature import (
    flattened,
    hessian,
    second_derivative_problem,
    top_of,
    unflattened,
)
from landscape_cli.errors import MeasurementError


def test_products_are_those_of_the_matrix_of_a_quadratic() -> None:
    model = cases.quadratic(5)
    vector = torch.arange(5.0, dtype=torch.float64)
    with surveyed(model, cases.one_batch(), "model") as site:
        torch.testing.assert_close(hessian(site.objective).product(vector), model.matrix @ vector)
        assert second_derivative_problem(site.objective) == ""
        pairs = top_of(site.objective, 2, seed=0)
    expected = torch.linalg.eigvalsh(model.matrix).flip(0)[:2]
    torch.testing.assert_close(pairs.values, expected)


def test_flattening_keeps_the_order_shapes_and_types_of_the_parameters() -> None:
    with surveyed(cases.SmallConvNet().float(), cases.image_data(3, 6)) as site:
        gradient = site.gradient
        back = unflattened(site.objective, flattened(gradient))
        for first, second in zip(gradient, back, strict=True):
            assert first.dtype == second.dtype
            assert torch.equal(first, second)


def test_a_hessian_that_is_not_finite_is_told_of() -> None:
    model = cases.Quadratic(torch.full((2, 2), torch.inf).double(), torch.ones(2).double())
    refused = pytest.raises(MeasurementError, match="not finite")
    with surveyed(model, cases.one_batch(), "model") as site, refused:
        hessian(site.objective).product(torch.ones(2, dtype=torch.float64))
