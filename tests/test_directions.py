from __future__ import annotations

import cases
import pytest
import torch
from sites import surveyed
from torch import nn

from landscape_cli import directions
from landscape_cli.errors import MeasurementError
from landscape_cli.parameters import Parameters, norm


def net() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 4))


def test_filter_normalised_units_have_the_norms_of_the_weights() -> None:
    theta = Parameters(net())
    direction = directions.random_filter(theta, seed=1, draw=0)
    for d, w in zip(direction, theta.origin, strict=True):
        if w.dim() == 1:
            assert not d.any()
            continue
        for unit, weights in zip(d, w, strict=True):
            assert float(unit.norm()) == pytest.approx(float(weights.norm()), rel=1e-5)


def test_random_directions_do_not_depend_on_the_type() -> None:
    single = directions.random(Parameters(net()), seed=1, draw=2)
    double = directions.random(Parameters(net().double()), seed=1, draw=2)
    assert all(torch.equal(a.double(), b) for a, b in zip(single, double, strict=True))


def test_draws_and_seeds_give_other_directions() -> None:
    theta = Parameters(net())
    drawn = [directions.random(theta, seed, draw)[0] for seed, draw in ((1, 0), (1, 1), (2, 0))]
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_random_directions_are_isotropic() -> None:
    theta = Parameters(nn.Linear(200, 200))
    first, second = (directions.random(theta, 1, draw) for draw in (0, 1))
    flat = [torch.cat([t.flatten() for t in d]).double() for d in (first, second)]
    # 40,200 independent normal numbers: mean within 4/√n, variance within 4·√(2/n).
    assert abs(float(flat[0].mean())) < 0.02
    assert float(flat[0].var()) == pytest.approx(1, abs=0.03)
    cosine = float(flat[0] @ flat[1] / flat[0].norm() / flat[1].norm())
    assert abs(cosine) < 0.02


def test_scaling_gives_the_length_asked_for() -> None:
    theta = Parameters(net())
    scaled = directions.scaled_to(directions.random(theta, 1, 0), 2.5)
    assert norm(scaled) == pytest.approx(2.5, rel=1e-6)
    zero = [torch.zeros_like(t) for t in theta.origin]
    assert norm(directions.scaled_to(zero, 2.5)) == 0


def test_a_step_of_one_towards_a_target_arrives() -> None:
    model = net().double()
    theta = Parameters(model)
    target = [t + 1 for t in theta.origin]
    theta.move(directions.towards(theta, target), 1.0)
    for here, there in zip(model.parameters(), target, strict=True):
        torch.testing.assert_close(here.detach(), there, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("rank", [0, 1, 4])
def test_an_eigenvector_is_that_of_the_dense_matrix_and_points_uphill(rank: int) -> None:
    model = cases.quadratic(5)
    values, vectors = torch.linalg.eigh(model.matrix)
    with surveyed(model, cases.one_batch(), "model") as site:
        (found,) = directions.eigenvector(site.objective, rank, seed=0)
        assert float(found @ site.gradient[0]) >= 0
    assert float((found @ vectors.flip(1)[:, rank]).abs()) == pytest.approx(1)
    assert float(found @ model.matrix @ found) == pytest.approx(float(values.flip(0)[rank]))


def test_an_eigenvector_beyond_the_number_of_parameters_does_not_exist() -> None:
    beyond = pytest.raises(MeasurementError, match="no eigenvector of that rank")
    with surveyed(cases.quadratic(5), cases.one_batch(), "model") as site, beyond:
        directions.eigenvector(site.objective, 5, seed=0)
