from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch import nn

from landscape_cli import parameters
from landscape_cli.errors import MeasurementError


def random_tensors(*shapes: tuple[int, ...], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


SHAPES = [(3, 4), (5,), (), (700, 200), (2, 3, 4, 4), (0,)]


def test_sums_agree_with_one_flat_float64_vector() -> None:
    x, y = random_tensors(*SHAPES, seed=1), random_tensors(*SHAPES, seed=2)
    flat_x, flat_y = (torch.cat([t.double().flatten() for t in ts]) for ts in (x, y))
    assert float(parameters.inner_product(x, y)) == pytest.approx(float(flat_x @ flat_y), rel=1e-12)
    assert float(parameters.squared_norm(x)) == pytest.approx(float(flat_x @ flat_x), rel=1e-13)
    difference = flat_x - flat_y
    expected = [float(flat_x @ flat_x), float(difference @ difference), float(flat_x @ flat_y)]
    assert parameters.gradient_sums(x, y).tolist() == pytest.approx(expected, rel=1e-12)


def test_sums_leave_float64_operands_as_they_are() -> None:
    x, y = [torch.arange(4.0).double()], [torch.ones(4).double()]
    parameters.gradient_sums(x, y)
    parameters.squared_difference(x, y)
    assert torch.equal(x[0], torch.arange(4.0).double())


def test_sums_do_not_depend_on_the_memory_format() -> None:
    x, y = random_tensors((8, 3, 5, 5), seed=1), random_tensors((8, 3, 5, 5), seed=2)
    last = [t.to(memory_format=torch.channels_last) for t in x]
    expected = parameters.gradient_sums(x, y)
    torch.testing.assert_close(parameters.gradient_sums(last, y), expected)
    both = [t.to(memory_format=torch.channels_last) for t in y]
    torch.testing.assert_close(parameters.gradient_sums(last, both), expected)


def test_norms_do_not_overflow_where_float32_squares_would() -> None:
    assert parameters.norm([torch.full((4,), 1e30)]) == pytest.approx(2e30, rel=1e-6)


def test_the_norm_of_a_million_float32_numbers_is_exact_to_float64() -> None:
    (x,) = random_tensors((1_000_003,))
    assert parameters.norm([x]) == pytest.approx(float(x.double().norm()), rel=1e-13)


def test_moving_and_restoring_is_exact() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    before = [p.detach().clone() for p in model.parameters()]
    theta = parameters.Parameters(model)
    direction = random_tensors(*(tuple(p.shape) for p in model.parameters()))
    theta.move(direction, 0.3)
    for p, origin, d in zip(model.parameters(), before, direction, strict=True):
        torch.testing.assert_close(p.detach(), origin - 0.3 * d)
    assert math.sqrt(theta.squared_distance()) == pytest.approx(
        0.3 * parameters.norm(direction), rel=1e-6
    )
    theta.restore()
    assert all(map(torch.equal, model.parameters(), before))
    assert float(theta.squared_distance()) == 0


def test_tied_parameters_count_once_and_frozen_ones_do_not() -> None:
    model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    model[1].weight = model[0].weight
    model[1].bias.requires_grad_(False)
    assert parameters.Parameters(model).count == 9 + 3


def test_parameters_that_share_memory_by_accident_are_refused() -> None:
    model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
    model[1].weight.data = model[0].weight.data
    with pytest.raises(MeasurementError, match="overlap in memory"):
        parameters.Parameters(model)


def test_a_model_in_which_nothing_trains_is_refused() -> None:
    with pytest.raises(MeasurementError, match="no trainable parameter"):
        parameters.Parameters(nn.Linear(2, 2).requires_grad_(False))


def test_patterns_choose_what_trains() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    with parameters.chosen_parameters(model, ["1.*"], ["*.bias"]) as count:
        assert count == 1
        assert parameters.Parameters(model).names == ("1.weight",)
    assert all(p.requires_grad for p in model.parameters())
    unknown = parameters.chosen_parameters(model, ["layer9.*"], [])
    with pytest.raises(MeasurementError, match="no parameter is named"), unknown:
        pass


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_sums_are_those_of_float64_and_leave_the_tensors_alone(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(300, 500), (0,), (7,), (), (40, 3, 3, 3)]  # the first is more than a block
    first, second = (
        [torch.randn(shape, generator=generator).to(dtype) for shape in shapes] for _ in range(2)
    )
    before = [tensor.clone() for tensor in (*first, *second)]
    x, y = (torch.cat([tensor.double().flatten() for tensor in part]) for part in (first, second))
    close = partial(pytest.approx, rel=1e-13)
    assert float(parameters.squared_norm(first)) == close(float(x @ x))
    assert float(parameters.inner_product(first, second)) == close(float(x @ y))
    assert float(parameters.squared_difference(first, second)) == close(float((x - y) @ (x - y)))
    expected = [float(x @ x), float((x - y) @ (x - y)), float(x @ y)]
    assert parameters.gradient_sums(first, second).tolist() == close(expected)
    assert all(map(torch.equal, (*first, *second), before))
    assert float(parameters.squared_norm([torch.ones(0)])) == 0


def test_sums_of_several_threads_do_not_meet() -> None:
    vectors = [[torch.full((200_000,), float(k))] for k in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda v: [float(parameters.norm(v)) for _ in range(20)], vectors))
    for k, norms in enumerate(found):
        assert norms == [pytest.approx(k * 200_000**0.5)] * 20
