"""How far the moments of layer inputs move."""

from __future__ import annotations

import numpy as np
import pytest

from landscape_cli.runs import Run, Variable
from landscape_cli.studies.distributions import (
    common_layers,
    first_batch,
    instability,
    join_checkpoints,
)


def run_of(mean, variance, layers=("a", "b")) -> Run:
    """Return a run of which every layer has one unit."""
    dims = ("checkpoint", "layer", "unit")
    return Run(
        {
            "checkpoint": Variable(("checkpoint",), np.arange(len(mean))),
            "training_step": Variable(("checkpoint",), np.array([0, 1, 10, 11][: len(mean)])),
            "activations/layer": Variable(("layer",), np.array(layers, dtype=object)),
            "activations/unit_mean": Variable(dims, np.array(mean, dtype=float)[..., None]),
            "activations/unit_variance": Variable(dims, np.array(variance, dtype=float)[..., None]),
        }
    )


def test_a_shift_by_one_deviation_counts_one() -> None:
    run = run_of([[0, 0], [2, 0], [4, 0]], [[4, 1]] * 3)
    assert instability(run, ["a"]) == pytest.approx(1.0)
    assert instability(run, ["b"]) == 0.0
    assert instability(run, ["a", "b"]) == pytest.approx(0.5)


def test_only_checkpoints_that_are_so_far_apart_count() -> None:
    run = run_of([[0, 0], [1, 0], [50, 0], [53, 0]], [[1, 1]] * 4)
    assert instability(run, ["a"], apart=1) == pytest.approx(2.0)
    assert instability(run, ["a"], apart=9) == pytest.approx(49.0)
    assert instability(run, ["a"]) == pytest.approx(3.0)


def test_a_wider_distribution_counts_the_logarithm_of_the_factor() -> None:
    run = run_of([[0, 0]] * 2, [[1, 1], [np.e**2, np.e**-2]])
    assert instability(run, ["a"]) == pytest.approx(1.0)
    assert instability(run, ["b"]) == pytest.approx(1.0)


def test_a_unit_that_is_constant_is_left_out() -> None:
    run = run_of([[0, 0], [1, 3]], [[1, 0], [1, 0]])
    assert instability(run, ["a", "b"]) == pytest.approx(1.0)


def test_one_unit_that_is_almost_constant_does_not_outweigh_the_others() -> None:
    run = run_of([[0, 0, 0], [1, 1, 1]], [[1, 1, 1e-12]] * 2, ("a", "b", "c"))
    assert instability(run, ["a", "b", "c"]) == pytest.approx(1.0)


def test_joined_checkpoints_are_a_trajectory() -> None:
    runs = [run_of([[place, 0]], [[1, 1]]) for place in range(3)]
    joined = join_checkpoints(runs)
    assert joined["activations/unit_mean"][:, 0, 0].tolist() == [0, 1, 2]
    assert joined.labels("activations/layer") == ["a", "b"]


def test_layers_that_only_some_have_are_left_out() -> None:
    runs = {
        "x": [run_of([[0, 0, 0]], [[1, 1, 1]], ("a", "norm", "b"))],
        "y": [run_of([[0, 0]], [[1, 1]], ("a", "b"))],
    }
    assert common_layers(runs) == ["a", "b"]


def test_a_first_batch_is_the_first_samples() -> None:
    inputs, targets = first_batch("sample:gaussian?samples=20&seed=3", 7)
    again, _ = first_batch("sample:gaussian?samples=20&seed=3", 20)
    assert inputs.shape == targets.shape == (7, 10)
    assert (again[:7] == inputs).all()
