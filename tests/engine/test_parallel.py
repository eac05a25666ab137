"""Several points at once, each on a copy of the model."""

from __future__ import annotations

from dataclasses import replace

import engine_cases
import numpy as np
import pytest
import torch
from engine_cases import PROBLEMS
from torch import Tensor, nn

from landscape_cli.batches import Batch
from landscape_cli.engine import parallel
from landscape_cli.engine.check import CheckedSweep
from landscape_cli.engine.parallel import Parallel
from landscape_cli.engine.plain import Plain
from landscape_cli.engine.strategy import Line
from landscape_cli.objective import Objective
from landscape_cli.site import Site
from landscape_cli.threads import limited

SIZES = np.linspace(0.01, 0.1, 7)


@pytest.mark.parametrize("problem", ["resnet", "gpt", "mlp-frozen"])
def test_points_are_bit_for_bit_those_of_one_thread(problem: str) -> None:
    with engine_cases.open_site(PROBLEMS[problem], torch.float32) as site, limited(1):
        line = Line("gradient", site.gradient)
        expected, _ = Plain().prepare(site, line).evaluate(SIZES)
        found = [
            Parallel().prepare(replace(site, threads=3), line, chunk=lanes).evaluate(SIZES)[0]
            for lanes in (1, 2, 3)
        ]
    assert all(np.array_equal(columns, expected) for columns in found)


def test_the_model_never_moves() -> None:
    with engine_cases.open_site(PROBLEMS["gpt"]) as site:
        line = Line("gradient", site.gradient)
        versions = [tensor._version for tensor in site.parameters.tensors]
        Parallel().prepare(site, line, chunk=2).evaluate(SIZES)
        assert [tensor._version for tensor in site.parameters.tensors] == versions


def test_theta_zero_and_the_batches_are_shared() -> None:
    with engine_cases.open_site(PROBLEMS["gpt"]) as site:
        replica = site.objective.replica()
        assert replica.batches is site.objective.batches
        pairs = zip(replica.parameters.origin, site.parameters.origin, strict=True)
        assert all(copied is kept for copied, kept in pairs)
        mine = {tensor.data_ptr() for tensor in site.parameters.tensors}
        assert mine.isdisjoint(tensor.data_ptr() for tensor in replica.parameters.tensors)


class Penalised:
    """A loss that reaches for the model itself, as one written for it alone may."""

    whole = False

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def terms(self, batch: Batch) -> int:
        return batch.size

    def total(self, output: Tensor, batch: Batch) -> Tensor:
        weights = sum(p.square().sum() for p in self.model.parameters())
        return (output.square().sum() + batch.size * weights).double()


def test_a_loss_that_reaches_for_the_model_itself_is_found_out() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    batches = [Batch.split((torch.randn(5, 3).double(), torch.randn(5, 2).double()), model)]
    told: list[str] = []
    with Objective(model, batches, Penalised(model)) as objective:
        site = Site.survey(objective, label="", learning_rate=0.1, seed=0, threads=2)
        line = Line("gradient", site.gradient)
        sweep = CheckedSweep(Parallel(), site, line, chunk=2, tell=told.append)
        found, _ = sweep.evaluate(SIZES)
        expected, _ = Plain().prepare(site, line).evaluate(SIZES)
    assert sweep.failed
    assert "gave way to plain" in told[0]
    np.testing.assert_array_equal(found, expected)


def test_a_model_that_cannot_be_copied_gives_way_to_plain() -> None:
    class Single(nn.Linear):
        def __deepcopy__(self, memo: dict[int, object]) -> nn.Module:
            raise RuntimeError("there is only one of it")

    model = Single(3, 2)
    batches = [Batch.split((torch.randn(5, 3), torch.randn(5, 2)), model)]
    told: list[str] = []
    with Objective(model, batches, Penalised(model)) as objective:
        site = Site.survey(objective, label="", learning_rate=0.1, seed=0, threads=2)
        line = Line("gradient", site.gradient)
        CheckedSweep(Parallel(), site, line, chunk=2, tell=told.append).evaluate(SIZES)
    assert told == [
        "the strategy parallel gave way to plain: RuntimeError: there is only one of it"
    ]


def test_large_models_are_not_copied_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine_cases.open_site(PROBLEMS["gpt"]) as site:
        assert Parallel().promises(site, 1.0, 100)
        assert not Parallel().promises(site, 1.0, 40)
        monkeypatch.setattr(parallel, "STREAMED", site.parameters.count)
        assert not Parallel().promises(site, 1.0, 100)


@pytest.mark.parametrize(("problem", "reason"), [("dropping", "random")])
def test_what_the_copies_would_share_is_refused(problem: str, reason: str) -> None:
    with engine_cases.open_site(PROBLEMS[problem]) as site:
        assert reason in Parallel().refusal(site, Line("gradient", site.gradient))
