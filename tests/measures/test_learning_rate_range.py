from __future__ import annotations

import copy
import math

import cases
import numpy as np
import oracles
import pytest
import torch
from sites import surveyed, taken

from landscape_cli.errors import SpecError
from landscape_cli.measures.learning_rate_range import LearningRateRange, widest_range

NETS = {
    "dense": (cases.Tanh3, lambda: cases.vector_data(11)),
    "convolutional": (cases.SmallConvNet, lambda: cases.image_data(7, 6)),
    "batch norm": (
        cases.SmallBatchNormNet,
        lambda: cases.image_data(9, 4) + cases.image_data(5, 4, seed=8),
    ),
}


@pytest.mark.parametrize("net", NETS)
def test_paths_are_those_of_plain_gradient_descent(net: str) -> None:
    build, data = NETS[net]
    raws, multiples = data(), [0.5, 2.0]
    expected = []
    for multiple in multiples:
        model = copy.deepcopy(build())
        optimiser = torch.optim.SGD(model.parameters(), lr=0.3 * multiple)
        losses = []
        for _ in range(5):
            optimiser.zero_grad()
            loss = oracles.mean_cross_entropy(model, raws)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        expected.append(losses)
    with surveyed(build(), raws, lr=0.3, multiples=multiples) as site:
        found = taken(LearningRateRange(iterations=4), site)
    np.testing.assert_allclose(found["loss"], expected, rtol=1e-9)
    assert found["iteration"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("curvature", [0.5, 4.0, 40.0])
def test_the_range_on_a_quadratic_ends_at_two_over_its_largest_curvature(curvature: float) -> None:
    matrix = torch.diag(torch.tensor([curvature, curvature / 3, curvature / 7])).double()
    model = cases.Quadratic(matrix, torch.ones(3, dtype=torch.float64))
    edge = 2 / curvature
    multiples = [0.2 * edge, 0.7 * edge, 0.98 * edge, 1.02 * edge, 3 * edge]
    with surveyed(model, cases.one_batch(), "model", lr=1.0, multiples=multiples) as site:
        found = taken(LearningRateRange(iterations=60), site)
    assert found["diverged"].tolist() == [0, 0, 0, 1, 1]
    assert found["lowest"] == pytest.approx(0.2 * edge)
    assert found["highest"] == pytest.approx(0.98 * edge)
    # θ_t = (1 − aλ)ᵗ along each axis.
    values = torch.diagonal(matrix).numpy()
    factors = 1 - 0.7 * edge * values
    expected = [0.5 * float((values * factors ** (2 * t)).sum()) for t in range(61)]
    np.testing.assert_allclose(found["loss"][1], expected, rtol=1e-9, atol=1e-30)


def test_a_path_that_overflows_stops_there_and_has_diverged() -> None:
    model = cases.quadratic()
    with surveyed(model, cases.one_batch(), "model", lr=1e100, multiples=[1.0]) as site:
        found = taken(LearningRateRange(iterations=6), site)
    finite = np.isfinite(found["loss"][0])
    assert finite[0]
    assert not finite[-1]
    first = int(np.argmin(finite))
    assert np.isnan(found["loss"][0, first + 1 :]).all()
    assert found["diverged"].tolist() == [1]
    assert math.isnan(found["lowest"])
    assert math.isnan(found["highest"])


def test_a_minimum_stays_where_it_is_at_every_rate() -> None:
    model = cases.Quadratic(torch.eye(3).double(), torch.zeros(3, dtype=torch.float64))
    with surveyed(model, cases.one_batch(), "model", multiples=[1.0, 100.0]) as site:
        found = taken(LearningRateRange(iterations=3), site)
    assert found["diverged"].tolist() == [0, 0]
    assert (found["lowest"], found["highest"]) == (1.0, 100.0)


def test_the_widest_range_skips_gaps_and_steps_that_are_not_positive() -> None:
    multiples = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0])
    stays = np.array([True, True, True, True, False, True, True])
    assert widest_range(multiples, stays) == (3.0, 4.0)
    assert widest_range(multiples[:4], stays[:4]) == (1.0, 1.0)


def test_it_is_refused_without_a_rate_or_steps() -> None:
    with surveyed(cases.Tanh3(), cases.vector_data(5), lr=math.nan) as site:
        assert "--lr" in LearningRateRange().refusal(site)
    with surveyed(cases.Tanh3(), cases.vector_data(5), multiples=()) as site:
        assert "no step multiples" in LearningRateRange().refusal(site)


def test_no_iterations_are_wrong_usage() -> None:
    with pytest.raises(SpecError, match="iterations"):
        LearningRateRange(iterations=0)
