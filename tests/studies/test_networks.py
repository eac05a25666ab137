"""The published protocols, read off the settings."""

from __future__ import annotations

import pytest

from landscape_cli.adapters.building import build_model
from landscape_cli.studies.networks import LABELS, deep_linear, vgg
from landscape_cli.studies.workbench import Workbench


def test_the_vgg_is_trained_as_published(tmp_path) -> None:
    network = vgg(Workbench(tmp_path, "paper", data_root=tmp_path))
    training = network.training
    assert (training["steps"], training["batch_size"], training["lr"]) == (15_000, 128, 0.1)
    assert network.probing["steps"].startswith("0.5:4:")
    assert "cifar10" in network.data
    assert "augment" not in network.data


def test_the_deep_linear_network_is_trained_as_published(tmp_path) -> None:
    network = deep_linear(Workbench(tmp_path, "paper"))
    training = network.training
    assert (training["steps"], training["lr"], training["loss"]) == (10_000, 1e-6, "sse")
    assert training["full_batch"]
    assert network.probing["steps"].startswith("0.01:30:")
    assert "samples=1000" in network.data


@pytest.mark.parametrize("make", [vgg, deep_linear])
def test_a_seed_draws_the_same_weights_whatever_the_norm(make, tmp_path) -> None:
    network = make(Workbench(tmp_path, "laptop"))
    plain = dict(build_model(network.model("none", 3)).named_parameters())
    for norm in LABELS:
        other = dict(build_model(network.model(norm, 3)).named_parameters())
        assert all((other[name] == plain[name]).all() for name in plain), norm
    different = dict(build_model(network.model("none", 4)).named_parameters())
    assert any((different[name] != plain[name]).any() for name in plain)
