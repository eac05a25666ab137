from __future__ import annotations

import pytest
import torch
from saved_checkpoints import make_net, make_optimiser

from landscape_cli.checkpoints.contents import step_size, whole_step
from landscape_cli.checkpoints.training_state import learning_rate, training_step


@pytest.mark.parametrize(
    ("value", "step"),
    [
        (0, 0), (7, 7), ("12", 12), (3.0, 3), (2**63 - 1, 2**63 - 1),
        (-1, -1), (1.5, -1), ("x", -1), (None, -1), ([], -1), (float("inf"), -1), (2**63, -1),
    ],
)  # fmt: skip
def test_a_step_is_a_whole_number_or_unknown(value, step):
    assert whole_step(value) == step


@pytest.mark.parametrize(
    ("value", "rate"),
    [(0.1, 0.1), ("1e-3", 1e-3), (1, 1.0), (0, None), (-1, None), ("x", None), (None, None),
     (float("nan"), None), (float("inf"), None), ([0.1], None), (10**400, None)],
)  # fmt: skip
def test_a_rate_is_positive_and_finite_or_unknown(value, rate):
    assert step_size(value) == rate


@pytest.mark.parametrize("key", ["training_step", "global_step", "step", "iteration", "iter"])
def test_the_step_is_found_under_the_usual_keys(key):
    assert training_step({"epoch": 2, key: 40}) == 40


def test_the_global_step_goes_before_the_step():
    assert training_step({"step": 3, "global_step": 40}) == 40


def test_a_key_that_is_no_number_does_not_hide_another():
    assert training_step({"global_step": "late", "step": 3}) == 3


@pytest.mark.parametrize("key", ["optimizer", "optimizer_state_dict", "optim", "optimizers"])
@pytest.mark.parametrize("listed", [True, False])
def test_the_rate_is_that_of_the_first_group(key, listed):
    net = make_net()
    groups = [{"params": [net.conv.weight], "lr": 0.5}, {"params": [net.norm.weight], "lr": 0.25}]
    state = torch.optim.SGD(groups).state_dict()
    assert learning_rate({key: [state] if listed else state}) == 0.5
    assert learning_rate({key: {"adam": state}}) == 0.5


def test_the_state_of_an_optimiser_itself_tells_its_rate():
    assert learning_rate(make_optimiser(make_net()).state_dict()) == 0.0375


def test_a_rate_beside_the_weights_serves_where_there_is_no_optimiser():
    assert learning_rate({"lr": 0.3, "epoch": 1}) == 0.3


@pytest.mark.parametrize(
    "tree", [None, [], {}, 3, {"optimizer": None}, {"optimizer": {"param_groups": None}},
             {"optimizer": {"param_groups": []}}, {"optimizer": {"param_groups": [{}]}}],
)  # fmt: skip
def test_trees_that_say_nothing_are_unknown(tree):
    assert learning_rate(tree) is None
    assert training_step(tree) == -1
