"""Least squares descents, against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from landscape_cli.studies.cai_ols import data_spec, samples_of
from landscape_cli.studies.least_squares import (
    REACHED,
    Problem,
    arrived,
    decades,
    observed_contraction,
    steps_to_arrive,
)


@pytest.fixture
def problem() -> Problem:
    return Problem.of(data_spec(6, 3), samples_of(6), 3)


def test_plain_descent_is_a_sum_of_geometric_series(problem) -> None:
    """J(w_k) − J* = ½Σ λᵢ(1 − ελᵢ)²ᵏ cᵢ², c the coordinates of w₀ − u."""
    values, vectors = np.linalg.eigh(problem.moments.H.numpy())
    solution = np.linalg.solve(problem.moments.H.numpy(), problem.moments.g.numpy())
    coordinates = vectors.T @ (problem.start.numpy() - solution)
    multiples = np.array([0.3, 0.9, 1.1])
    gaps = problem.plain(multiples, 7)
    scale = 0.5 * solution @ problem.moments.g.numpy()
    for place, multiple in enumerate(multiples):
        factors = (1 - multiple * 2 / values[-1] * values) ** (2 * 7)
        wanted = 0.5 * (values * factors * coordinates**2).sum() / scale
        assert gaps[-1, place] == pytest.approx(wanted, rel=1e-9)


def test_the_first_scale_is_the_best_for_the_first_weights(problem) -> None:
    gaps, _ = problem.normalised(np.array([1e-12]), 1)
    outputs = problem.start.numpy() @ problem.moments.g.numpy()
    variance = problem.start.numpy() @ problem.moments.H.numpy() @ problem.start.numpy()
    explained = outputs**2 / variance
    whole = 2 * (0.5 * problem.moments.c - problem.moments.minimum)
    assert gaps[0, 0] == pytest.approx(1 - explained / whole, rel=1e-9)


def test_the_contraction_is_the_spectral_radius_of_the_update(problem) -> None:
    """Against the Jacobian of w ↦ w + (εa/σ)(g − (wᵀg/σ²)Hw) at the minimiser, a at its best."""
    moments, rate = problem.moments, 0.4

    def update(w):
        deviation = (w @ moments.H @ w).sqrt()
        slope = w @ moments.g / deviation
        return w + rate * slope / deviation * (moments.g - slope / deviation * (moments.H @ w))

    jacobian = torch.autograd.functional.jacobian(update, moments.solution)
    radii = np.sort(np.abs(np.linalg.eigvals(jacobian.numpy())))
    # ε̂ = ε·a·wᵀg/σ³ = ε at w = u, where a = σ and wᵀg = σ².
    others = np.abs(1 - rate * np.linalg.eigvalsh(moments.normalised_hessian.numpy())[1:])
    assert np.sort(np.r_[others, 1.0]) == pytest.approx(radii, rel=1e-7)
    assert problem.contraction(np.array([rate])) == pytest.approx(others.max() ** 2, rel=1e-9)


def test_the_rate_that_is_seen_is_the_one_that_is_predicted(problem) -> None:
    gaps, effective = problem.normalised(np.array([0.02]), 3_000)
    seen, predicted = observed_contraction(gaps)[0], problem.contraction(effective)[0]
    assert np.log(seen) == pytest.approx(np.log(predicted), rel=0.02)


def test_normalising_does_not_worsen_the_condition(problem) -> None:
    plain, normalised = problem.conditions
    assert plain == pytest.approx(10.0, rel=1e-6)
    assert 1 <= normalised <= plain


def test_a_contraction_is_read_off_a_geometric_series() -> None:
    gaps = (0.7 ** np.arange(120))[:, None] * np.array([1.0, 1e-30])
    found = observed_contraction(gaps)
    assert found[0] == pytest.approx(0.7, rel=1e-9)
    assert np.isnan(found[1])


def test_arriving_and_when() -> None:
    gaps = np.array([[1.0, 1.0, 1.0], [REACHED / 2, 0.1, np.inf], [REACHED / 9, REACHED, np.nan]])
    assert arrived(gaps).tolist() == [True, True, False]
    assert arrived(gaps, 1).tolist() == [True, False, False]
    assert steps_to_arrive(gaps).tolist() == [1, 2, np.inf]


def test_a_range_without_step_sizes_has_no_width() -> None:
    assert decades(np.array([1.0, 10.0]), np.array([False, False])) == 0.0
    assert decades(np.array([1.0, 10.0, 100.0]), np.array([False, True, True])) == 1.0


def test_the_probe_descends_as_the_exact_update_does(reproduced) -> None:
    """The measure's losses on the network are twice those of the recursion, from its weights."""
    from landscape_cli.checkpoints import read
    from landscape_cli.store import open_run
    from sample_models.optim import descend

    result = reproduced("cai-ols")
    run = open_run(result.folder / "runs" / "none-0.h5")
    start = read(result.folder / "trainings" / "none-0" / "step-000000.safetensors")
    weights = torch.as_tensor(next(iter(start.tensors.values()))).double().reshape(-1)
    problem = Problem.of(data_spec(8, 0), samples_of(8), 0)
    rates = torch.as_tensor(run["step_multiple"]) * problem.moments.largest_step
    wanted = 2 * descend(problem.moments, weights, rates[:5], 50).losses.numpy().T
    found = run["learning_rate_range/loss"][0][:5]
    assert np.allclose(found, wanted, rtol=1e-8)
