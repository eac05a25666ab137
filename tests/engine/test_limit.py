"""The limit of the smoothness, by second derivatives or by differences."""

from __future__ import annotations

import dataclasses

import engine_cases
import pytest
import torch
from engine_cases import PROBLEMS
from torch import Tensor, nn

from landscape_cli.engine import limit as module
from landscape_cli.engine.limit import difference_curvature, limit


class Once(torch.autograd.Function):
    """The identity, which says that it cannot be differentiated twice."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return grad


class Single(nn.Module):
    def __init__(self, *, once: bool) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layer = nn.Linear(30, 5)
        self.once = once

    def forward(self, x: Tensor) -> Tensor:
        scores = self.layer(x)
        return Once.apply(scores) if self.once else scores


def problem(*, once: bool) -> engine_cases.Problem:
    return dataclasses.replace(PROBLEMS["mlp-relu"], model=lambda: Single(once=once).double())


def test_a_function_without_a_second_derivative_is_not_taken_for_constant() -> None:
    told: list[str] = []
    with engine_cases.open_site(problem(once=False)) as site:
        expected = limit(site, site.gradient, told)
    assert not told
    with engine_cases.open_site(problem(once=True)) as site:
        found = limit(site, site.gradient, told)
    assert found == pytest.approx(expected, rel=1e-6)
    assert len(told) == 1
    assert "once_differentiable" in told[0]


@pytest.mark.parametrize("name", ["mlp-tanh", "gpt", "awkward"])
def test_second_derivatives_agree_with_differences(name: str) -> None:
    with engine_cases.open_site(PROBLEMS[name]) as site:
        exact = site.objective.directional_curvature(site.gradient)
        # A central difference is off by ε² times the third derivative, ε = eps^⅓ ‖θ‖.
        assert difference_curvature(site, site.gradient) == pytest.approx(exact, rel=1e-4)


def test_differences_are_taken_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    with engine_cases.open_site(PROBLEMS["mlp-tanh"]) as site:
        expected = limit(site, site.gradient, told)
        monkeypatch.setattr(module, "available_bytes", lambda device: 0)
        assert limit(site, site.gradient, told) == pytest.approx(expected, rel=1e-6)
    assert told == ["the limit is a central difference: the memory is short"]
