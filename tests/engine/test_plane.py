"""Planes against formulas, and trajectories on them."""

from __future__ import annotations

from pathlib import Path

import cases
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import landscape_cli as landscape
from landscape_cli.engine.plane import principal_components, project
from landscape_cli.errors import LandscapeError

GRID = "-2:2:5"
MULTIPLES = np.linspace(-2, 2, 5)


def save(folder: Path, step: int, theta: Tensor) -> Path:
    path = folder / f"step-{step}.safetensors"
    matrix = cases.quadratic().matrix
    save_file(
        {"theta": theta, "matrix": matrix},
        path,
        {"training_step": str(step), "learning_rate": "0.1"},
    )
    return path


def value(theta: Tensor) -> float:
    return float(0.5 * theta @ cases.quadratic().matrix @ theta)


def plane(paths: object, axes: str, **settings: object) -> landscape.Run:
    return landscape.probe(
        paths,
        model=cases.quadratic(),
        data=cases.one_batch(),
        loss="model",
        steps="1:2:2",
        plane=axes,
        plane_steps=GRID,
        dtype="float64",
        **settings,
    )


def test_a_plane_of_a_quadratic_is_the_quadratic() -> None:
    model = cases.quadratic()
    run = plane((), "gradient,random:0", lr=0.1)
    theta = model.theta.detach()
    gradient = model.matrix @ theta
    assert run["plane/loss"].shape == (1, 5, 5)
    np.testing.assert_array_equal(run["plane/plane_x"], MULTIPLES)
    along = [value(theta - 0.1 * a * gradient) for a in MULTIPLES]
    np.testing.assert_allclose(run["plane/loss"][0, 2], along, rtol=1e-12)
    other = landscape.probe(
        model=model,
        data=cases.one_batch(),
        loss="model",
        lr=0.1,
        directions="random:1",
        steps="-2:2:5:lin",
    )
    np.testing.assert_allclose(run["plane/loss"][0, :, 2], other["loss"][0, 0], rtol=1e-10)
    assert run.attributes["status"] == "complete"


def test_a_plane_through_three_checkpoints_meets_them(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    thetas = [torch.randn(5, generator=generator, dtype=torch.float64) for _ in range(3)]
    paths = [save(tmp_path, step, theta) for step, theta in enumerate(thetas)]
    run = plane(paths[2], f"toward:{paths[0]},toward:{paths[1]}", lr=0.1)
    surface = run["plane/loss"][0]
    assert surface[2, 2] == pytest.approx(value(thetas[2]), rel=1e-12)
    # Multiples are a itself: (1, 0) and (0, 1) are the other two.
    assert surface[2, 3] == pytest.approx(value(thetas[0]), rel=1e-12)
    assert surface[3, 2] == pytest.approx(value(thetas[1]), rel=1e-12)


def test_the_trajectory_is_projected_on_the_plane_around_its_end(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(4)
    end, first, second = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    places = [(1.5, -0.5), (0.25, 1.0), (0.0, 0.0)]
    thetas = [end - a * (end - first) - b * (end - second) for a, b in places]
    for step, theta in enumerate(thetas):
        save(tmp_path, step, theta)
    corners = tmp_path / "corners"
    corners.mkdir()
    axes = ",".join(f"toward:{save(corners, i, c)}" for i, c in enumerate((first, second)))
    run = plane(tmp_path, axes)
    found = np.stack([run["plane/trajectory_x"], run["plane/trajectory_y"]], axis=1)
    np.testing.assert_allclose(found, places, atol=1e-12)
    assert run["plane/loss"].shape == (3, 5, 5)
    assert np.isfinite(run["plane/loss"]).all()


def test_principal_components_hold_a_flat_trajectory_and_its_losses(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(5)
    end, along, across = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    factors = [(3.0, 0.1), (2.0, -0.4), (1.0, 0.3), (0.0, 0.0)]
    thetas = [end + a * along + b * across for a, b in factors]
    for step, theta in enumerate(thetas):
        save(tmp_path, step, theta)
    run = plane(tmp_path, "pca")
    x, y = run["plane/trajectory_x"], run["plane/trajectory_y"]
    assert abs(x).max() == pytest.approx(1, rel=1e-9)
    assert abs(y).max() == pytest.approx(1, rel=1e-9)
    assert (x[-1], y[-1]) == (0, 0)
    assert np.isnan(run["plane/loss"][:-1]).all(), "one plane serves the trajectory"
    assert run["plane/loss"][-1, 2, 2] == pytest.approx(value(end), rel=1e-12)
    assert run.attributes["status"] == "complete"
    # The loss of a quadratic over the plane is a quadratic polynomial: it meets the checkpoints.
    grid_y, grid_x = np.meshgrid(MULTIPLES, MULTIPLES, indexing="ij")

    def terms(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.stack([np.ones_like(a), a, b, a * a, a * b, b * b], -1)

    fit = np.linalg.lstsq(
        terms(grid_x.ravel(), grid_y.ravel()), run["plane/loss"][-1].ravel(), rcond=None
    )[0]
    np.testing.assert_allclose(terms(x, y) @ fit, [value(t) for t in thetas], rtol=1e-8)


def test_two_checkpoints_do_not_span_a_plane(tmp_path: Path) -> None:
    paths = [save(tmp_path, step, torch.ones(5, dtype=torch.float64) * step) for step in (1, 2)]
    run = plane(paths, "pca")
    assert run.attributes["status"] == "partial"
    assert "span" in run.attributes["notices"]


def test_components_are_axes_of_the_displacements() -> None:
    generator = torch.Generator().manual_seed(6)
    displacements = [
        [torch.randn(3, 2, generator=generator, dtype=torch.float64) * scale for scale in (1, 2)]
        for _ in range(4)
    ]
    flat = torch.stack([torch.cat([t.reshape(-1) for t in d]) for d in displacements])
    expected = torch.linalg.svd(flat, full_matrices=False)[2][:2]
    axes = [
        torch.cat([t.reshape(-1) for t in axis]) for axis in principal_components(displacements)
    ]
    for axis, vector in zip(axes, expected, strict=True):
        assert abs(float(axis @ vector)) == pytest.approx(float(axis.norm()), rel=1e-9)
    coordinates = project(displacements, principal_components(displacements))
    assert coordinates.abs().max(0).values.tolist() == pytest.approx([1, 1])


def test_a_plane_without_a_following_checkpoint_is_told(tmp_path: Path) -> None:
    path = save(tmp_path, 1, torch.ones(5, dtype=torch.float64))
    run = plane(path, "gradient,update")
    assert "no second checkpoint" in run.attributes["notices"]
    assert np.isnan(run["plane/loss"]).all()


def test_a_plane_on_one_direction_is_an_error_of_usage() -> None:
    with pytest.raises(LandscapeError, match="two different directions"):
        plane((), "gradient,gradient", lr=0.1)
