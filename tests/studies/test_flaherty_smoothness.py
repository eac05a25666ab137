"""Rescaled networks, sizes of activations and best step sizes, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from landscape_cli.runs import Run, Variable
from landscape_cli.studies.flaherty_smoothness import best_step_sizes, typical_ratio
from landscape_cli.studies.rescaling import _sizes, rescale


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()


def test_a_rescaled_network_is_the_same_function_bit_for_bit(network) -> None:
    inputs = torch.randn(5, 3, dtype=torch.float64)
    before = network(inputs)
    stored = [parameter.detach().clone() for parameter in network.parameters()]
    rescaled = rescale(network, 4.0)
    assert torch.equal(rescaled(inputs), before)
    assert float(sum(p.detach().square().sum() for p in rescaled.parameters())) == pytest.approx(
        16 * float(sum(p.square().sum() for p in stored))
    )


def test_gradients_of_a_rescaled_network_are_divided_by_the_factor(network) -> None:
    inputs = torch.randn(5, 3, dtype=torch.float64)
    plain = torch.autograd.grad(network(inputs).square().sum(), list(network.parameters()))
    rescaled = rescale(network, 4.0)
    found = torch.autograd.grad(rescaled(inputs).square().sum(), list(rescaled.parameters()))
    sizes = sorted(float(g.square().sum()) for g in plain)
    assert sorted(16 * float(g.square().sum()) for g in found) == pytest.approx(sizes, rel=1e-12)


def test_sizes_are_mean_squares_over_examples(network) -> None:
    inputs = torch.randn(5, 3, dtype=torch.float64)
    first = network[0](inputs).detach().numpy()
    last = network(inputs).detach().numpy()
    wanted = [(values**2).sum(1).mean() for values in (last, first)]
    assert _sizes(network, ["2", "0"], [inputs]) == pytest.approx(wanted, rel=1e-12)
    assert not network[0]._forward_hooks


def test_the_best_step_size_ends_lowest_and_is_finite() -> None:
    losses = np.array([[[1.0, 0.9], [1.0, 0.2], [1.0, np.nan]], [[1, 0.1], [1, 0.2], [1, np.inf]]])
    run = Run(
        {
            "learning_rate_range/loss": Variable(("checkpoint", "step", "iteration"), losses),
            "step_size": Variable(("checkpoint", "step"), np.array([[0.1, 0.2, 0.4]] * 2)),
        }
    )
    assert best_step_sizes(run).tolist() == [0.2, 0.1]


def test_typical_ratios_leave_out_what_is_not_positive_and_finite() -> None:
    first = [np.array([1.0, 2.0, np.nan, -1.0]), np.array([1.0, 1.0])]
    other = [np.array([4.0, 2.0, 5.0, 3.0]), np.array([2.0, 2.0])]
    found = typical_ratio(first, other)
    assert found.value == pytest.approx(2.0)
    assert found.interval == pytest.approx((2.0, 2.0))


def test_rescaling_changes_beta_and_not_the_descent(reproduced) -> None:
    claims = {claim.claim: claim for claim in reproduced("flaherty-smoothness").claims}
    smaller = claims["re-scaling the parameters reduces β"]
    assert smaller.holds
    assert smaller.interval == pytest.approx((1 / 16, 1 / 16), rel=1e-9)
    assert "in activation space 1 (1 to 1" in smaller.observed
    assert claims["re-scaling the parameters does not improve convergence"].holds
