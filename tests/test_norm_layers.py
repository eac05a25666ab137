from __future__ import annotations

import pytest
import torch
from torch import nn

from landscape_cli import norm_layers


class Shared(nn.Module):
    """One BatchNorm used twice in a forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.relu(self.norm(x)) * 2 + 1)


def inputs(seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(5, 3, 4, 4, generator=generator, dtype=torch.float64) * 2 + 1


def test_untracked_gives_the_same_values_and_leaves_the_buffers() -> None:
    model = Shared().train()
    before = {name: b.clone() for name, b in model.named_buffers()}
    with norm_layers.untracked(model):
        quiet = model(inputs())
    assert all(torch.equal(b, before[name]) for name, b in model.named_buffers())
    assert torch.equal(quiet, model(inputs()))
    assert not torch.equal(model.norm.running_mean, before["norm.running_mean"])


def test_frozen_statistics_replay_what_each_use_saw() -> None:
    model = Shared().train()
    frozen = norm_layers.FrozenStatistics(model)
    with norm_layers.untracked(model):
        expected = []
        for seed in range(2):
            with frozen.record():
                expected.append(model(inputs(seed)))
        for index, values in enumerate(expected):
            with frozen.replay(index):
                torch.testing.assert_close(model(inputs(index)), values, rtol=1e-12, atol=1e-12)


def test_frozen_statistics_are_constants_of_the_gradient() -> None:
    model = Shared().train()
    frozen = norm_layers.FrozenStatistics(model)
    x = inputs().requires_grad_()
    with norm_layers.untracked(model), frozen.record():
        model(x)
    with frozen.replay(0):
        (slope,) = torch.autograd.grad(model(x).sum(), x)
    # With constant statistics the sum has a gradient; with the batch's own it has none.
    assert slope.abs().max() > 1e-3
    with norm_layers.untracked(model):
        (own,) = torch.autograd.grad(model(x).sum(), x)
    assert own.abs().max() < 1e-10


def test_layers_are_what_they_were_after_a_replay_that_raises() -> None:
    model = Shared().train()
    frozen = norm_layers.FrozenStatistics(model)
    with norm_layers.untracked(model), frozen.record():
        model(inputs())
    mean = model.norm.running_mean
    with pytest.raises(ZeroDivisionError), frozen.replay(0):
        model(inputs())
        raise ZeroDivisionError
    assert model.norm.running_mean is mean
    assert model.norm.training
    assert not model.norm._forward_pre_hooks


def test_a_layer_of_anybodys_can_be_frozen() -> None:
    class Centred(nn.Module):
        fixed_statistics = None

        def batch_statistics(self, input: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (input.mean(0),)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            (mean,) = self.fixed_statistics or self.batch_statistics(x)
            return x - mean

    layer = Centred()
    frozen = norm_layers.FrozenStatistics(layer)
    x = torch.arange(6.0).reshape(3, 2)
    with frozen.record():
        layer(x)
    with frozen.replay(0):
        assert torch.equal(layer(x + 1), x + 1 - x.mean(0))
    assert torch.equal(layer(x + 1), x - x.mean(0))
