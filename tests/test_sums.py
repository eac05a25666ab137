"""Sums over θ are exact to rounding, whatever the sizes, layouts and magnitudes."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from landscape_cli import sums
from landscape_cli.parameters import Parameters
from landscape_cli.sums import PointSums


class Tensors(nn.Module):
    """Parameters of given shapes and nothing else."""

    def __init__(self, shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.parts = nn.ParameterList(
            torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes
        )


SHAPES = [(3,), (64, 3, 3, 3), (200, 300), (), (5, 0), (4096,), (1, 4097)]


def drawn_like(parameters: Parameters, seed: int, scale: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(t.shape, generator=generator).to(t) for t in parameters.tensors]


def exact(x: list[Tensor], r: list[Tensor]) -> list[float]:
    wide = [(a.double(), b.double()) for a, b in zip(x, r, strict=True)]
    terms = [
        [math.fsum((a * a).flatten().tolist()) for a, _ in wide],
        [math.fsum(((a - b) ** 2).flatten().tolist()) for a, b in wide],
        [math.fsum((a * b).flatten().tolist()) for a, b in wide],
    ]
    return [math.fsum(part) for part in terms]


@pytest.fixture(params=["joined", "tensor by tensor"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "joined":
        monkeypatch.setattr(sums, "JOINED", 0)
        monkeypatch.setattr(sums, "BLOCK", 8192)
    return str(request.param)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_sums_are_exact_to_rounding(way: str, layout: torch.memory_format) -> None:
    model = Tensors(SHAPES)
    model.parts[1].data = model.parts[1].data.contiguous(memory_format=layout)
    theta = Parameters(model)
    x, r = drawn_like(theta, 1), drawn_like(theta, 2)
    # A gradient need not lie in memory as its parameter does.
    x[1] = x[1].contiguous(memory_format=torch.channels_last)
    found = PointSums(theta, r).of_gradient(x)
    assert found.dtype == torch.float64
    norms = math.sqrt(exact(x, r)[0] * exact(r, r)[0])
    assert found[:2].tolist() == pytest.approx(exact(x, r)[:2], rel=1e-7)
    assert float(found[2]) == pytest.approx(exact(x, r)[2], abs=1e-7 * norms)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_distances_are_those_that_rounding_left(way: str, layout: torch.memory_format) -> None:
    model = Tensors(SHAPES)
    model.parts[1].data = model.parts[1].data.contiguous(memory_format=layout)
    theta = Parameters(model)
    direction, reference = drawn_like(theta, 3), drawn_like(theta, 4)
    point_sums = PointSums(theta, reference)
    for step in (1e-6, 0.5):
        theta.move(direction, step)
        present = [tensor.detach() for tensor in theta.tensors]
        expected = exact(present, list(theta.origin))[1]
        assert float(point_sums.of_distance()) == pytest.approx(expected, rel=1e-7)
    theta.restore()
    assert float(point_sums.of_distance()) == 0


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e18, 1e25])
def test_magnitudes_whose_squares_leave_float32_are_summed_in_float64(
    way: str, scale: float
) -> None:
    theta = Parameters(Tensors([(300,), (20, 20)]))
    x, r = drawn_like(theta, 1, scale), drawn_like(theta, 2, scale)
    found = PointSums(theta, r).of_gradient(x)
    assert found[:2].tolist() == pytest.approx(exact(x, r)[:2], rel=1e-7)
    assert found[:2].min() > 0


def test_an_equal_gradient_has_not_changed(way: str) -> None:
    theta = Parameters(Tensors(SHAPES))
    x = drawn_like(theta, 1)
    assert PointSums(theta, x).of_gradient(x)[1] == 0


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_what_is_not_finite_stays_so(way: str, value: float) -> None:
    theta = Parameters(Tensors([(30,), (2, 2)]))
    x, r = drawn_like(theta, 1), drawn_like(theta, 2)
    x[0][3] = value
    found = PointSums(theta, r).of_gradient(x)
    assert not found[:2].isfinite().any()


def test_float64_is_not_narrowed(way: str) -> None:
    theta = Parameters(Tensors([(5000,), (7, 7)], torch.float64))
    x, r = drawn_like(theta, 1), drawn_like(theta, 2)
    assert PointSums(theta, r).of_gradient(x).tolist() == pytest.approx(exact(x, r), rel=1e-13)


def test_parameters_that_are_views_of_others_layouts_are_read_anew() -> None:
    model = Tensors([(4, 6)])
    model.parts[0].data = model.parts[0].data.T.contiguous().T  # strides that no flat view has
    theta = Parameters(model)
    point_sums = PointSums(theta, drawn_like(theta, 1))
    theta.move(drawn_like(theta, 2), 0.25)
    present = [tensor.detach() for tensor in theta.tensors]
    expected = exact(present, list(theta.origin))[1]
    assert float(point_sums.of_distance()) == pytest.approx(expected, rel=1e-6)
