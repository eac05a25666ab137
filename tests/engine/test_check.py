"""Rewritten sweeps that are wrong, fail or run out of memory give way to the plain path."""

from __future__ import annotations

from collections.abc import Callable

import engine_cases
import numpy as np
import pytest
import torch
from engine_cases import PROBLEMS

from landscape_cli.engine.check import CheckedSweep, disagreement
from landscape_cli.engine.choice import STRATEGIES, Choice
from landscape_cli.engine.plain import Plain
from landscape_cli.engine.steering import Steering
from landscape_cli.engine.strategy import Line

SIZES = np.linspace(0.01, 0.1, 6)


class Tampered:
    """The stacked strategy with its columns changed on the way."""

    name = "stacked"
    summary = "tampered with"

    def __init__(self, change: Callable[[np.ndarray], np.ndarray]) -> None:
        self.change = change

    def refusal(self, site, slice_) -> str:
        return ""

    def prepare(self, site, slice_, *, chunk=1):
        sweep = STRATEGIES["stacked"].prepare(site, slice_, chunk=chunk)
        change = self.change

        class Sweep:
            def evaluate(self, sizes):
                columns, rows = sweep.evaluate(sizes)
                return change(columns), rows

        return Sweep()


def raising(_: np.ndarray) -> np.ndarray:
    raise ValueError("not this model")


def scaled(column: int, factor: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(columns: np.ndarray) -> np.ndarray:
        columns = columns.copy()
        columns[:, column] *= factor
        return columns

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (scaled(0, 1.001), "loss"),
        (scaled(2, 1.5), "gradient change"),
        (scaled(3, 0.5), "gradient"),
        (scaled(4, 1.1), "distance"),
        (scaled(0, np.nan), "finite"),
        (raising, "ValueError: not this model"),
    ],
)
def test_a_wrong_sweep_gives_way_to_plain_and_says_so(change, said: str) -> None:
    told: list[str] = []
    with engine_cases.open_site(PROBLEMS["mlp-tanh"]) as site:
        line = Line("gradient", site.gradient)
        expected, _ = Plain().prepare(site, line).evaluate(SIZES)
        sweep = CheckedSweep(Tampered(change), site, line, chunk=3, tell=told.append)
        found, _ = sweep.evaluate(SIZES)
    assert np.array_equal(found, expected)
    assert sweep.failed
    assert len(told) == 1
    assert said in told[0]


def test_a_right_sweep_is_left_alone() -> None:
    told: list[str] = []
    with engine_cases.open_site(PROBLEMS["mlp-tanh"]) as site:
        line = Line("gradient", site.gradient)
        expected, _ = STRATEGIES["stacked"].prepare(site, line, chunk=3).evaluate(SIZES)
        sweep = CheckedSweep(STRATEGIES["stacked"], site, line, chunk=3, tell=told.append)
        found, _ = sweep.evaluate(SIZES)
    assert np.array_equal(found, expected)
    assert not told


def test_what_only_rounding_changes_is_no_disagreement() -> None:
    with engine_cases.open_site(PROBLEMS["mlp-relu"], torch.float32) as site:
        columns = Plain().prepare(site, Line("g", site.gradient)).evaluate([0.1])[0][0]
        nudged = columns * (1 + 1e-6 * np.array([1, -1, 1, -1, 0.5]))
        assert disagreement(site, nudged, columns) == ""


def test_a_failed_strategy_revises_the_choice_of_the_run() -> None:
    steering = Steering()
    steering.adopt(Choice("stacked", 3))
    with engine_cases.open_site(PROBLEMS["mlp-tanh"]) as site:
        line = Line("gradient", site.gradient)
        sweep = CheckedSweep(Tampered(raising), site, line, chunk=3, tell=steering.told.append)
        steering._prepared = ("line", sweep)
        steering.sweep("line", site, line).evaluate(SIZES)
        steering.revise()
    revision = steering.take_revision()
    assert revision is not None
    assert (revision.key.name, revision.key.start, revision.key.stop) == ("plain", 1, 1)
    assert steering.take_revision() is None
    assert len(steering.take_told()) == 1


def test_a_chunk_that_did_not_fit_revises_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    from landscape_cli.engine.dense import DenseEvaluation

    whole = DenseEvaluation.__call__

    def cramped(self, points):
        if len(points) > 2:
            raise torch.OutOfMemoryError("no room")
        return whole(self, points)

    monkeypatch.setattr(DenseEvaluation, "__call__", cramped)
    steering = Steering()
    steering.adopt(Choice("stacked", 4))
    with engine_cases.open_site(PROBLEMS["mlp-tanh"]) as site:
        line = Line("gradient", site.gradient)
        expected, _ = Plain().prepare(site, line).evaluate(SIZES)
        found, _ = steering.sweep("line", site, line).evaluate(SIZES)
        steering.revise()
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    revision = steering.take_revision()
    assert revision is not None
    assert (revision.key.name, revision.key.stop) == ("stacked", 2)
