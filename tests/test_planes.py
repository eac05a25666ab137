"""Which planes can be asked for."""

from __future__ import annotations

import numpy as np
import pytest

from landscape_cli.errors import SpecError
from landscape_cli.planes import COMPONENTS, PlaneSpec


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("gradient,random:0", ("gradient", "random:0")),
        ("random:0,random:1", ("random:0", "random:1")),
        ("toward:a,b.pt,toward:c.pt", ("toward:a,b.pt", "toward:c.pt")),
        ("random-filter:0,random-filter:1", ("random-filter:0", "random-filter:1")),
        ("pca", COMPONENTS),
    ],
)
def test_two_directions_make_a_plane(text: str, axes: tuple[str, str]) -> None:
    assert PlaneSpec.parse(text, "-1:1:3").axes == axes


@pytest.mark.parametrize("text", ["gradient", "gradient,gradient", "a,b", "random:x,gradient", ","])
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(SpecError, match="not two different directions"):
        PlaneSpec.parse(text, "-1:1:3")


def test_a_grid_that_is_none_is_an_error() -> None:
    with pytest.raises(SpecError):
        PlaneSpec.parse("pca", "1:-1:3")


def test_points_are_row_by_row_with_the_first_axis_fastest() -> None:
    points = PlaneSpec.parse("gradient,random:0", "-1:1:3").multiples()
    assert points[:4].tolist() == [[-1, -1], [0, -1], [1, -1], [-1, 0]]
    assert points.shape == (9, 2)


def test_multiples_are_of_the_learning_rate_along_scaled_directions_only() -> None:
    assert PlaneSpec.parse("gradient,toward:x.pt", "-1:1:3").scaled() == (True, False)
    assert PlaneSpec.parse("pca", "-1:1:3").scaled() == (False, False)


def test_the_grid_may_be_logarithmic() -> None:
    grid = PlaneSpec.parse("gradient,random:0", "0.1:10:3:log").grid
    np.testing.assert_allclose(grid.multiples(), [0.1, 1, 10])
