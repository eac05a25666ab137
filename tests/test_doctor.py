"""The dry run: what it finds in models that are fine, and in models that are not."""

from __future__ import annotations

import json

import cases
import numpy as np
import pytest
import torch
from allocations import peak_allocation
from torch import Tensor, nn

import landscape_cli as landscape
from landscape_cli.doctor import Diagnosis, examine


def look(model: nn.Module, **settings: object) -> Diagnosis:
    arguments: dict[str, object] = {"data": cases.awkward_data(64), "lr": 0.1, "batch_size": 32}
    return examine(model=model.double(), **{**arguments, **settings})


def level(diagnosis: Diagnosis, subject: str) -> str:
    return next(f.level for f in diagnosis.findings if f.subject == subject)


def text(diagnosis: Diagnosis, subject: str) -> str:
    found = next(f for f in diagnosis.findings if f.subject == subject)
    return f"{found.what} {found.advice}"


def test_a_plain_model_is_healthy() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    diagnosis = look(model)
    assert diagnosis.healthy
    assert {f.level for f in diagnosis.findings} == {"good"}
    assert diagnosis.points == 16
    assert diagnosis.parameters == 4 * 8 + 8 + 8 * 3 + 3
    assert diagnosis.strategy == "plain"
    assert diagnosis.seconds_expected == pytest.approx(16 * diagnosis.seconds_per_point)
    assert "graph" in diagnosis.refusals


def test_the_awkward_model_has_norm_layers_and_an_unreached_parameter() -> None:
    diagnosis = look(cases.Awkward())
    assert "1 layers (BatchNorm1d)" in text(diagnosis, "norm layers")
    assert "does not reach 1: unused" in text(diagnosis, "parameters")
    assert diagnosis.healthy


def test_batch_statistics_over_few_samples_are_a_problem() -> None:
    diagnosis = look(cases.Awkward(), batch_size=8)
    assert level(diagnosis, "norm layers") == "problem"
    assert not diagnosis.healthy
    assert level(look(cases.Awkward(), batch_size=8, norm_mode="running"), "norm layers") == "note"


def test_dropout_is_told() -> None:
    diagnosis = look(cases.Dropping())
    assert "1 dropout layers draw" in text(diagnosis, "dropout")
    assert level(diagnosis, "determinism") == "good", "the mask is fixed"
    assert level(look(cases.Dropping(), norm_mode="running"), "dropout") == "good"


class Drifting(nn.Module):
    """Gives another answer at every call, by a counter that no buffer holds."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x) * (1 + 0.01 * self.calls)


def test_a_model_that_drifts_is_not_deterministic() -> None:
    diagnosis = look(Drifting())
    assert level(diagnosis, "determinism") == "problem"
    assert "differ" in text(diagnosis, "determinism")


def test_a_gradient_that_is_zero_or_no_number_is_a_problem() -> None:
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight[0, 0] = np.nan
    assert level(look(model), "values") == "problem"


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return grad


def test_a_model_without_a_second_derivative_is_told() -> None:
    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return Once.apply(self.layer(x))

    found = look(Single())
    assert level(found, "curvature") == "note"
    assert "once_differentiable" in text(found, "curvature")


def test_too_few_samples_are_told() -> None:
    model = nn.Linear(4, 3)
    assert "64 samples" in text(look(model, batch_size=50, batches=2), "data")


def test_a_forced_strategy_that_cannot_serve_is_a_problem() -> None:
    diagnosis = look(nn.Linear(4, 3), strategy="compressed")
    assert level(diagnosis, "strategy") == "problem"
    assert diagnosis.strategy == "plain"


def test_memory_that_does_not_suffice_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    from landscape_cli.engine import memory

    monkeypatch.setattr(memory, "available_bytes", lambda device: 10)
    assert level(look(nn.Linear(4, 3)), "memory") == "problem"


def test_several_workers_share_the_time_and_each_takes_its_memory() -> None:
    one, two = look(nn.Linear(4, 3)), look(nn.Linear(4, 3), device="cpu,cpu")
    assert "on 2 workers" in text(two, "time")
    assert "workers" not in text(one, "time")
    assert two.workers == 2
    assert two.seconds_expected == pytest.approx(16 * two.seconds_per_point / 2)
    assert two.bytes_expected == 2 * one.bytes_expected


def test_a_diagnosis_is_plain_values_and_leaves_the_model_alone() -> None:
    model = cases.Awkward().double()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    diagnosis = look(model)
    assert json.loads(json.dumps(diagnosis.to_dict()))["healthy"] is True
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("settings", [{}, {"directions": "random:1"}, {"batches": 3}])
def test_the_memory_expected_is_what_a_probe_takes(settings: dict[str, object]) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(400, 400) for _ in range(10)))
        data = [(torch.randn(40, 400), torch.randn(40, 400)) for _ in range(3)]
    arguments = {"model": model, "data": data, "loss": "mse", "lr": 0.1, "steps": "1:2:2"}
    arguments |= {"strategy": "plain", **settings}
    expected = examine(**arguments).bytes_expected
    with peak_allocation() as peak:
        landscape.probe(**arguments)
    # The largest tensor, a tenth of θ, comes on top of three to five copies.
    assert 0.9 < expected / peak.bytes < 1.1
