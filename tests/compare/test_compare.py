"""What a comparison says about runs whose difference is known."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from synthetic import changed, damaged, summarised, synthetic_run

from landscape_cli.compare import compare, name_runs
from landscape_cli.errors import SpecError
from landscape_cli.store import write


def strict(comparison) -> dict:
    return json.loads(json.dumps(comparison.to_dict(), allow_nan=False))


def scaled(run, factor: float):
    """The same run with every gradient change `factor` times as large."""
    return summarised(changed(run, gradient_change=factor * run["gradient_change"]))


def test_a_run_against_a_scaled_copy_gives_the_factor_exactly():
    run = synthetic_run(noise=0.3)
    (pairing,) = compare(run, scaled(run, 0.31), labels=["A", "B"]).pairings
    for name in ("gradient_change", "beta", "limit", "beta_times_lr"):
        contrast = pairing.contrast(name)
        assert contrast.ratio == pytest.approx(0.31)
        assert contrast.median_ratio == pytest.approx(0.31)
        assert contrast.interval == pytest.approx((0.31, 0.31))
        assert contrast.verdict == "B lower"
        assert contrast.other_median == pytest.approx(0.31 * contrast.first_median)
    assert pairing.contrast("loss_range").ratio == pytest.approx(1.0)


def test_medians_and_ratios_are_those_of_numpy():
    a = synthetic_run(15, seed=0, noise=0.5)
    b = synthetic_run(15, seed=1, noise=0.5, curvature=2.0)
    contrast = compare(a, b).pairings[0].contrast("beta")
    x, y = (run["effective_smoothness/beta"][:, 0] for run in (a, b))
    assert contrast.first_median == pytest.approx(np.median(x))
    assert contrast.ratio == pytest.approx(np.exp(np.mean(np.log(y / x))))
    assert contrast.median_ratio == pytest.approx(np.median(y / x))


def test_the_order_of_the_runs_turns_the_ratio_over():
    a, b = synthetic_run(seed=0), synthetic_run(seed=1, curvature=1.0)
    there = compare(a, b, labels=["A", "B"]).pairings[0].contrast("beta")
    back = compare(b, a, labels=["B", "A"]).pairings[0].contrast("beta")
    assert there.ratio * back.ratio == pytest.approx(1.0)
    assert (there.verdict, back.verdict) == ("B lower", "B lower")


def test_runs_that_differ_by_noise_alone_show_no_clear_difference():
    runs = [synthetic_run(20, seed=seed, noise=0.4) for seed in range(30)]
    verdicts = [
        compare(a, b, labels=["A", "B"]).pairings[0].contrast("beta").verdict
        for a, b in zip(runs[::2], runs[1::2], strict=True)
    ]
    # At 95 % coverage 3 or more of 15 have a chance of under 4 %; these seeds are fixed.
    assert verdicts.count("no clear difference") >= 13


def test_pairs_that_are_not_finite_are_left_out_counted_and_said():
    a, b = synthetic_run(10), damaged(synthetic_run(10, seed=1), 2, slice(0, 3))
    contrast = compare(a, b, labels=["A", "B"]).pairings[0].contrast("loss_range")
    assert (contrast.pairs, contrast.left_out) == (7, 3)
    assert any("3 of 10 points left out" in text for text in contrast.warnings)
    kept = slice(3, None)
    ranges = [(r["loss_range/maximum"] - r["loss_range/minimum"])[kept, 0] for r in (a, b)]
    assert contrast.ratio == pytest.approx(np.exp(np.mean(np.log(ranges[1] / ranges[0]))))


def test_nothing_finite_in_common_is_said_and_is_json():
    a = synthetic_run(6)
    b = damaged(a, 3, slice(None))
    comparison = compare(a, b, labels=["A", "B"])
    contrast = comparison.pairings[0].contrast("beta")
    assert (contrast.verdict, contrast.pairs) == ("cannot tell", 0)
    assert "no checkpoints have finite values in both" in contrast.finding()
    assert strict(comparison)["pairings"][0]["contrasts"][2]["ratio"] is None


def test_one_checkpoint_each_gives_a_ratio_and_no_verdict():
    comparison = compare(synthetic_run(1), synthetic_run(1, seed=1), labels=["A", "B"])
    contrast = comparison.pairings[0].contrast("beta")
    assert contrast.interval is None
    assert contrast.verdict == "cannot tell"
    assert "too few for an interval" in comparison.findings()[0]


def test_findings_say_what_came_out_either_way():
    a = synthetic_run(seed=0)
    lower = compare(a, scaled(a, 0.5), labels=["none", "batch"]).findings()
    assert any("with batch β* along the gradient is 0.5× that with none" in s for s in lower)
    assert any(s.endswith(": batch lower") for s in lower)
    higher = compare(a, scaled(a, 2.0), labels=["none", "batch"]).findings()
    assert any(s.endswith(": none lower") for s in higher)
    assert all("\n" not in line for line in lower + higher)


def test_repeats_of_a_label_are_compared_run_by_run():
    firsts = [synthetic_run(seed=s, curvature=4.0) for s in range(3)]
    others = [synthetic_run(seed=10 + s, curvature=2.0) for s in range(3)]
    comparison = compare(*firsts, *others, labels=["A"] * 3 + ["B"] * 3)
    (pairing,) = comparison.pairings
    assert "over runs" in pairing.method
    contrast = pairing.contrast("beta")
    assert contrast.verdict == "B lower"
    means = [np.log(r["effective_smoothness/beta"][:, 0]).mean() for r in firsts + others]
    assert contrast.ratio == pytest.approx(np.exp(np.mean(means[3:]) - np.mean(means[:3])))
    assert not any("one run per label" in text for text in comparison.warnings())


def test_more_labels_are_all_held_against_the_first():
    runs = [synthetic_run(seed=s) for s in range(3)]
    comparison = compare(*runs, labels=["A", "B", "C"])
    assert [(p.first, p.other) for p in comparison.pairings] == [("A", "B"), ("A", "C")]


def test_by_loss_faster_training_alone_is_no_smoothness():
    """β* = 5·loss in both; one trains twice as fast. By step they differ, by loss they do not."""
    losses = [2.3 * np.exp(-np.linspace(0, depth, 30)) for depth in (2.0, 4.0)]
    runs = [
        synthetic_run(30, curvature=5 * loss, base_loss=loss, noise=0.02, seed=s)
        for s, loss in enumerate(losses)
    ]
    by_step = compare(*runs, labels=["slow", "fast"]).pairings[0].contrast("beta")
    by_loss = compare(*runs, labels=["slow", "fast"], align="loss").pairings[0].contrast("beta")
    assert by_step.ratio < 0.5
    assert by_loss.ratio == pytest.approx(1.0, abs=0.03)


def test_settings_that_should_be_equal_are_named():
    a = synthetic_run(settings={"batch_size": 64, "norm_mode": "running"}, lr=0.1)
    b = synthetic_run(lr=0.2, seed=4)
    texts = " ".join(compare(a, b, labels=["A", "B"]).warnings())
    for part in (
        "batch_size differs (64 against 128)",
        "norm_mode differs",
        "learning rate",
        "seed",
    ):
        assert part in texts


def test_other_samples_are_noticed_by_their_hash():
    a, b = synthetic_run(), synthetic_run()
    assert not compare(a, b, labels=["A", "B"]).pairings[0].differences
    b.attributes["data_sha256"] = "f" * 64
    assert "data hash" in " ".join(compare(a, b, labels=["A", "B"]).warnings())


def test_saturation_the_noise_floor_and_infinities_are_warned_of():
    a, b = synthetic_run(8), synthetic_run(8)
    saturated = np.ones((8, 1), np.uint8)
    b = changed(b, effective_smoothness__saturated=saturated, noise_floor=np.full(8, 1e6))
    texts = compare(a, b, labels=["A", "B"]).pairings[0].contrast("beta").warnings
    assert any("saturated at 100% of the checkpoints in B" in text for text in texts)
    assert any("noise floor at 100%" in text for text in texts)
    limit = compare(a, b, labels=["A", "B"]).pairings[0].contrast("limit")
    assert not any("saturated" in text for text in limit.warnings)


def test_partial_runs_are_compared_where_they_are_measured():
    a, b = synthetic_run(8), damaged(synthetic_run(8), 0, slice(5, None))
    comparison = compare(a, b, labels=["A", "B"])
    assert comparison.pairings[0].contrast("beta").pairs == 5
    assert any("partial" in text for text in comparison.warnings())
    strict(comparison)


def test_directions_in_common_are_compared_and_the_others_named():
    a = synthetic_run(directions=("gradient", "random:0"))
    b = synthetic_run(directions=("random:0", "random:1"))
    (pairing,) = compare(a, b, labels=["A", "B"]).pairings
    assert pairing.directions == ("random:0",)
    assert any("gradient, random:1" in text for text in pairing.warnings)
    with pytest.raises(SpecError, match="no direction in common"):
        compare(synthetic_run(), synthetic_run(directions=("update",)))


def test_a_comparison_needs_two_labels():
    with pytest.raises(SpecError, match="two labels"):
        compare(synthetic_run())
    with pytest.raises(SpecError, match="two labels"):
        compare(synthetic_run(), synthetic_run(), labels=["A", "A"])
    with pytest.raises(SpecError, match="one label per run"):
        compare(synthetic_run(), synthetic_run(), labels=["A"])


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (["x/vgg.h5", "x/bn.h5"], ["vgg", "bn"]),
        (["a/run.h5", "b/run.h5"], ["a/run", "b/run"]),
        (["run.h5", "run.h5"], ["run (1)", "run (2)"]),
        (["a\\run.h5", "b\\run.h5"], ["a/run", "b/run"]),
        (["", ""], ["run (1)", "run (2)"]),
    ],
)
def test_default_names_are_as_short_as_tells_them_apart(sources, names):
    runs = [synthetic_run(1, source=source) for source in sources]
    assert name_runs(runs) == names


def test_runs_can_be_given_as_files(tmp_path):
    runs = [synthetic_run(seed=seed, directions=("gradient", "random:0")) for seed in (0, 1)]
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for run, path in zip(runs, paths, strict=True):
        write(run, path)
    from_files = compare(*paths, labels=["A", "B"])
    assert from_files.findings() == compare(*runs, labels=["A", "B"]).findings()


def test_the_public_name_is_callable_however_often_and_loads_no_torch():
    script = """
import sys, landscape_cli as landscape
import landscape_cli.compare, landscape_cli.figures.compared
for _ in range(2):
    try:
        landscape.compare()
    except landscape.LandscapeError as error:
        print(error.what)
print("torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:3] == ["a comparison needs two labels"] * 2 + ["False"]
