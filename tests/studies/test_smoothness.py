"""Ratios of landscapes whose curvatures are known."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import synthetic_run

from landscape_cli.studies.santurkar_fig10 import distance_ratio
from landscape_cli.studies.smoothness import PARTS, Pairs, explain, smoother_claims

CHECKPOINTS = 8


def runs(curvature, *, seeds: int = 3, noise: float = 0.0, **options):
    return [
        synthetic_run(CHECKPOINTS, curvature=curvature, seed=seed, noise=noise, **options)
        for seed in range(seeds)
    ]


def test_the_ratio_of_two_quadratics_is_that_of_their_curvatures() -> None:
    pairs = Pairs({"none": runs(4.0), "batch": runs(1.0)}, "none", "batch")
    for name in ("gradient_change", "beta"):
        assert pairs.ratio(name).value == pytest.approx(0.25, rel=1e-6)


def test_the_ratio_of_a_part_of_training_is_of_those_checkpoints() -> None:
    curvature = [8.0] * 4 + [2.0] * 4
    pairs = Pairs({"none": runs(4.0), "batch": runs(curvature)}, "none", "batch")
    assert pairs.ratio("beta", slice(0, 4)).value == pytest.approx(2.0, rel=1e-6)
    assert pairs.ratio("beta", slice(4, 8)).value == pytest.approx(0.5, rel=1e-6)
    assert pairs.ratio("beta").value == pytest.approx(1.0, rel=1e-6)


def test_only_training_steps_that_both_have_are_compared() -> None:
    longer, shorter = runs([4.0] * 4 + [400.0] * 4), runs(2.0)
    for run in shorter:
        run["training_step"][4:] += 10_000
    pairs = Pairs({"none": longer, "batch": shorter}, "none", "batch")
    assert pairs.ratio("beta").value == pytest.approx(0.5, rel=1e-6)


def test_claims_hold_where_the_other_is_smoother_and_not_where_it_is_rougher() -> None:
    for curvature, holds in ((1.0, True), (16.0, False)):
        groups = {"none": runs(4.0, noise=0.05), "batch": runs(curvature, noise=0.05)}
        for seed, run in enumerate(groups["batch"]):
            run["effective_smoothness/beta"][:] *= 1 + 0.01 * seed
        found = smoother_claims(Pairs(groups, "none", "batch"), claims=PARTS, sources=["here"] * 3)
        assert [claim.holds for claim in found[1:]] == [holds] * 2


def test_saturation_and_bad_first_steps_are_explained_where_they_appear() -> None:
    groups = {"none": runs(4.0), "batch": runs([40.0] + [0.4] * 7)}
    pairs = Pairs(groups, "none", "batch")
    assert "worse in its first steps" in explain(pairs, "beta")
    assert "saturated" not in explain(pairs, "beta")
    for run in groups["none"]:
        run["effective_smoothness/saturated"][:] = 1
    assert "saturated at 100% (Standard)" in explain(pairs, "beta")
    assert "saturated" not in explain(pairs, "loss_range")


def test_a_network_that_does_not_train_is_named() -> None:
    groups = {"none": runs(4.0, base_loss=2.3), "batch": runs(4.0)}
    text = explain(Pairs(groups, "none", "batch"), "loss_range")
    assert "Standard has not left its initial loss (3 of 3 seeds)" in text
    assert "BatchNorm has not" not in text


def test_nothing_is_explained_where_there_is_nothing_to_explain() -> None:
    groups = {"none": runs(4.0), "batch": runs(1.0)}
    text = explain(Pairs(groups, "none", "batch"), "beta")
    assert text.startswith("At equal loss")


def test_at_equal_distance_gradients_of_quadratics_differ_as_the_curvatures() -> None:
    # Different gradients are different distances: at equal steps the ratio would be 0.75·2.
    first = synthetic_run(CHECKPOINTS, curvature=4.0, noise=0.0)
    other = synthetic_run(CHECKPOINTS, curvature=3.0, noise=0.0)
    for name in ("distance", "gradient_change"):
        other[name][:] *= 2
    assert distance_ratio(first, other) == pytest.approx(0.75, rel=1e-6)


def test_curves_that_do_not_overlap_are_left_out() -> None:
    first = synthetic_run(CHECKPOINTS, curvature=4.0, noise=0.0)
    other = synthetic_run(CHECKPOINTS, curvature=3.0, noise=0.0)
    other["distance"][1:] *= 1e6
    assert distance_ratio(first, other) == pytest.approx(0.75, rel=1e-6)
    other["distance"][:] = np.nan
    assert np.isnan(distance_ratio(first, other))
