"""The choice of a strategy: by rule, confirmed by timing, or forced."""

from __future__ import annotations

from dataclasses import replace

import engine_cases
import numpy as np
import pytest
from engine_cases import PROBLEMS

from landscape_cli.engine import choice, compiled, stacked
from landscape_cli.engine.choice import Choice, Request, choose
from landscape_cli.engine.compiled import Compiled
from landscape_cli.engine.strategy import Line
from landscape_cli.errors import MeasurementError, SpecError
from landscape_cli.specs import STRATEGIES

SIZES = np.linspace(0.01, 0.1, 16)


def chosen(
    problem: str, strategy: str = "auto", chunk: int | None = None, points: int = 16
) -> Choice:
    with engine_cases.open_site(PROBLEMS[problem]) as site:
        line = Line("gradient", site.gradient)
        return choose(site, line, Request(strategy, chunk, points, 16, SIZES))


def test_the_names_of_the_strategies_are_those_of_the_settings() -> None:
    assert set(choice.STRATEGIES) == set(STRATEGIES)
    assert all(name == strategy.name for name, strategy in choice.STRATEGIES.items())


@pytest.fixture
def stacking_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock say so, whatever else the machine is doing."""
    monkeypatch.setattr(choice, "_timed", lambda sweep, sizes: 0.01 / len(sizes))
    monkeypatch.setattr(compiled, "WORTH_SECONDS", np.inf)


def test_a_short_run_is_left_to_the_plain_strategy() -> None:
    assert chosen("deep-linear") == Choice("plain")


@pytest.mark.usefixtures("stacking_pays")
def test_a_long_run_on_a_small_net_is_stacked() -> None:
    found = chosen("mlp-relu", points=1_000_000)
    assert found.strategy == "stacked"
    assert found.chunk in (8, 16)
    assert "ms a point" in found.reason


@pytest.mark.usefixtures("stacking_pays")
def test_a_small_model_of_any_kind_is_tried_stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "SMALL_SECONDS", 1.0)
    assert chosen("gpt", points=1_000_000).strategy == "stacked"
    monkeypatch.setattr(stacked, "SMALL_SECONDS", 0.0)
    assert chosen("gpt", points=1_000_000).strategy == "parallel"


@pytest.mark.usefixtures("stacking_pays")
def test_a_linear_chain_with_a_squared_loss_is_never_left_to_plain() -> None:
    assert chosen("deep-linear", points=1_000_000).strategy in ("compressed", "stacked")


@pytest.mark.usefixtures("stacking_pays")
def test_points_go_side_by_side_only_where_there_are_threads_for_them() -> None:
    with engine_cases.open_site(PROBLEMS["resnet"]) as site:
        line = Line("gradient", site.gradient)
        request = Request("auto", None, 1_000_000, 16, SIZES)
        alone = replace(site, threads=1)
        assert choose(alone, line, request).strategy == "plain"
        found = choose(replace(site, threads=3), line, request)
    assert (found.strategy, found.chunk) == ("parallel", 3)
    assert "3 points together" in found.reason


def test_compiling_is_tried_only_in_long_runs() -> None:
    with engine_cases.open_site(PROBLEMS["cnn"]) as site:
        assert not Compiled().promises(site, 0.1, 100)
        assert Compiled().promises(site, 0.1, 10_000)


def test_a_strategy_and_a_chunk_can_be_forced() -> None:
    found = chosen("mlp-relu", "stacked", chunk=5)
    assert (found.strategy, found.chunk) == ("stacked", 5)
    assert chosen("mlp-relu", "plain", points=1_000_000) == Choice("plain")


def test_a_forced_strategy_that_cannot_serve_is_an_error_with_its_reason() -> None:
    with pytest.raises(MeasurementError, match="compressed cannot serve") as caught:
        chosen("mlp-relu", "compressed")
    assert "sum of squares" in caught.value.seen


def test_no_strategy_of_that_name_is_an_error() -> None:
    with pytest.raises(SpecError, match="no strategy is named 'fast'"):
        choice.find_strategy("fast")


def test_the_memory_limits_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine_cases.open_site(PROBLEMS["mlp-relu"]) as site:
        room = 5 * choice.point_bytes(site) / choice.MEMORY_SHARE
    monkeypatch.setattr(choice, "available_bytes", lambda device: int(room))
    assert chosen("mlp-relu", "stacked").chunk <= 5
