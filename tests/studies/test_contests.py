"""What contests make of trainings: numbers by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from landscape_cli.errors import MeasurementError
from landscape_cli.studies.contests import Contest, Contrast, Method, Outcome, few
from landscape_cli.studies.workbench import Trained, Workbench

CONTEST = Contest(
    name="c",
    title="C",
    model="sample:mlp?hidden=4&in_features=64",
    data=("sklearn:digits", "sklearn:digits?split=test"),
    methods=(Method("a", 0.1), Method("b", 0.1, optimizer="bnp")),
    contrasts=(),
    steps=40,
    batch_size=8,
    source="S (2022)",
)


def trained(accuracies, *, until=40, diverged_at=None) -> Trained:
    """A training of 40 steps with an accuracy every 2, from step 0 on."""
    steps = np.arange(until + 1)
    tested = np.full(until + 1, np.nan)
    tested[::2] = accuracies
    history = {"step": steps, "loss": steps.astype(float), "test_accuracy": tested}
    return Trained("t", "m", "d", "cross-entropy", 0.1, (), history, diverged_at, 1.0)


def outcome(first, other) -> Outcome:
    return Outcome(CONTEST, {"a": first, "b": other}, {})


RISING = np.linspace(0.0, 1.0, 21)


def test_evaluations_are_every_twentieth_of_the_steps() -> None:
    assert CONTEST.every == 2
    assert CONTEST.evaluated.tolist() == list(range(2, 41, 2))


def test_early_is_the_first_quarter_and_final_the_last_fifth() -> None:
    found = outcome([trained(RISING)], [trained(RISING)])
    assert found.over("a", "early") == pytest.approx([np.mean([0.05, 0.1, 0.15, 0.2, 0.25])])
    assert found.over("a", "final") == pytest.approx([np.mean([0.85, 0.9, 0.95, 1.0])])


def test_gains_are_paired_by_seed() -> None:
    first = [trained(RISING), trained(RISING / 2)]
    other = [trained(RISING - 0.01), trained(RISING / 2 - 0.01)]
    gain = outcome(first, other).gain("a", "b", "final")
    assert gain.value == pytest.approx(-0.01)
    assert gain.interval == pytest.approx((-0.01, -0.01))


def test_the_last_weights_of_a_training_that_diverged_stay() -> None:
    short = trained([0.1, 0.5, 0.3], until=4, diverged_at=5)
    found = outcome([short], [trained(RISING)])
    assert found.accuracies("a")[0].tolist() == [0.5] + [0.3] * 19
    assert found.divergences() == "Trainings that ended in a loss that is not finite: a: 1."
    assert found.divergences(["b"]) == ""
    assert np.isnan(found.losses("a")[0, 2:]).all()


def test_losses_are_means_between_evaluations() -> None:
    found = outcome([trained(RISING)], [trained(RISING)])
    assert found.losses("a")[0].tolist() == [k + 1.5 for k in range(0, 40, 2)]


@pytest.mark.parametrize(
    ("shift", "relation", "holds"),
    [
        (0.01, "higher", True),
        (-0.01, "higher", False),
        (-0.01, "lower", True),
        (0.01, "lower", False),
        (0.019, "comparable", True),
        (-0.021, "comparable", False),
    ],
)
def test_a_contrast_holds_where_the_interval_says_so(shift, relation, holds) -> None:
    other = [trained(RISING + shift), trained(RISING + shift)]
    found = outcome([trained(RISING)] * 2, other)
    claim = Contrast("b against a", "a", "b", "final", relation).judge(found, "S (2022)")
    assert claim.holds is holds
    assert claim.interval == pytest.approx((shift, shift))


def test_seeds_that_disagree_decide_nothing() -> None:
    found = outcome([trained(RISING)] * 2, [trained(RISING + 0.1), trained(RISING - 0.1)])
    claim = Contrast("b against a", "a", "b", "early", "higher").judge(found, "S (2022)")
    assert claim.holds is None
    assert "ρ = 0.99" in claim.explanation
    late = Contrast("b against a", "a", "b", "final", "higher").judge(found, "S (2022)")
    assert late.explanation == ""


def test_few_takes_the_ends() -> None:
    assert few(list("abcdefg"), 3) == ["a", "d", "g"]
    assert few(list("ab"), 5) == ["a", "b"]


@pytest.fixture
def bench(tmp_path: Path) -> Workbench:
    pytest.importorskip("landscape_sklearn")
    return Workbench(tmp_path, "smoke")


def refusing(*, may_refuse: bool) -> Contest:
    method = Method("BN", 0.1, "norm=batch", may_refuse=may_refuse)
    return Contest(
        **{**vars(CONTEST), "methods": (method, Method("plain", 0.1)), "steps": 2, "batch_size": 1}
    )


def test_what_cannot_make_a_step_is_noted_where_that_is_expected(bench) -> None:
    found = refusing(may_refuse=True).hold(bench)
    assert list(found.trainings) == ["plain"]
    assert "more than 1 value per channel" in found.refusals["BN"]


def test_what_cannot_make_a_step_is_an_error_elsewhere(bench) -> None:
    with pytest.raises(MeasurementError):
        refusing(may_refuse=False).hold(bench)


def test_methods_share_weights_and_batches(bench) -> None:
    found = Contest(**{**vars(CONTEST), "steps": 2}).hold(bench)
    first, other = found.trainings["a"][0], found.trainings["b"][0]
    assert first.losses[0] == other.losses[0]
    assert first.losses[1] != other.losses[1]
    assert math.isfinite(first.final_test_accuracy)
