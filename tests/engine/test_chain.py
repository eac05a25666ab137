"""Which models are dense chains, and what is said of those that are not."""

from __future__ import annotations

import dataclasses

import engine_cases
import pytest
import torch
from engine_cases import PROBLEMS
from torch import Tensor, nn

from landscape_cli.engine.chain import Activation, Dense, Norm, read_chain


def problem_of(model: nn.Module) -> engine_cases.Problem:
    return dataclasses.replace(PROBLEMS["mlp-relu"], model=model.double)


def kinds(name: str) -> list[str]:
    with engine_cases.open_site(PROBLEMS[name]) as site:
        return [type(step).__name__ for step in read_chain(site.objective).steps]


def test_a_deep_linear_net_is_a_chain_of_its_layers() -> None:
    assert kinds("deep-linear") == ["Dense"] * 6


def test_an_mlp_is_a_chain_of_layers_and_activations() -> None:
    assert kinds("mlp-relu") == ["Dense", "Activation"] * 2 + ["Dense"]


def test_functions_and_modules_are_read_alike() -> None:
    assert kinds("functional") == ["Dense", "Activation", "Dense"]


def test_running_statistics_are_constants_of_the_chain() -> None:
    with engine_cases.open_site(PROBLEMS["deep-linear-running"]) as site:
        chain = read_chain(site.objective)
    norms = [step for step in chain.steps if isinstance(step, Norm)]
    assert norms
    assert all(step.statistics is not None for step in norms)
    assert not chain.normalised


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.inner, self.leave = nn.Linear(30, 8), nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.enter(x)
        return self.leave(hidden + self.inner(hidden))


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(30, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if x.sum() > 0 else self.layer(-x)


def tied() -> nn.Module:
    first, second = nn.Linear(30, 30), nn.Linear(30, 30)
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second, nn.Linear(30, 5))


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(30, 5))
    model[0].register_forward_hook(lambda *_: None)
    return model


def untrained() -> nn.Module:
    model = nn.Sequential(nn.Linear(30, 7), nn.Linear(7, 5))
    model[1].requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Residual(), "alone"),
        (Branching(), "cannot be traced"),
        (tied(), "share a tensor"),
        (hooked(), "hooks"),
        (untrained(), "does not train"),
        (nn.Sequential(nn.Linear(30, 5), nn.Softmax(1)), "Softmax"),
        (nn.Sequential(nn.Tanh(), nn.Linear(30, 5)), "first step"),
        (nn.Sequential(nn.Linear(30, 5), nn.GELU("tanh")), "settings"),
        (nn.Sequential(nn.Linear(30, 5), nn.Dropout(0.2)), "random"),
        (
            nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(30, 5))),
            "chain|Linear|trace",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_chain_says_why(model: nn.Module, reason: str) -> None:
    with (
        engine_cases.open_site(problem_of(model)) as site,
        pytest.raises(ValueError, match=reason),
    ):
        read_chain(site.objective)


def test_inactive_dropout_and_identities_leave_no_step() -> None:
    model = nn.Sequential(nn.Identity(), nn.Linear(30, 5), nn.Dropout(0.0), nn.Flatten())
    with engine_cases.open_site(problem_of(model)) as site:
        assert [type(s) for s in read_chain(site.objective).steps] == [Dense]


@pytest.mark.parametrize("name", ["relu", "tanh", "sigmoid", "gelu", "silu", "softplus"])
def test_written_out_derivatives_are_those_of_autograd(name: str) -> None:
    from landscape_cli.engine.chain import ACTIVATIONS

    activation: Activation = ACTIVATIONS[name]
    x = torch.linspace(-4, 4, 41, dtype=torch.float64, requires_grad=True)
    errors = torch.linspace(1, 2, 41, dtype=torch.float64)
    (expected,) = torch.autograd.grad(activation.forward(x * 1), x, errors)
    with torch.no_grad():
        y = activation.forward(x * 1)
        found = activation.backward(errors, x, y)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)


def test_an_objective_is_traced_once_and_what_is_in_the_way_is_looked_at_every_time() -> None:
    with engine_cases.open_site(PROBLEMS["mlp-relu"]) as site:
        chain = read_chain(site.objective)
        assert read_chain(site.objective) is chain
        handle = site.objective.model.register_forward_hook(lambda *_: None)
        with pytest.raises(ValueError, match="the model has hooks"):
            read_chain(site.objective)
        handle.remove()
        assert read_chain(site.objective) is chain
