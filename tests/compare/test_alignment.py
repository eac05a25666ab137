"""Which checkpoints are held against each other."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import changed, synthetic_run

from landscape_cli.compare.alignment import align_runs
from landscape_cli.errors import SpecError


def with_steps(*steps: int, **options):
    run = synthetic_run(len(steps), **options)
    return changed(run, training_step=np.array(steps, dtype=np.int64))


def with_losses(*losses: float, **options):
    return synthetic_run(len(losses), base_loss=losses, **options)


def test_equal_grids_pair_equal_steps():
    alignment = align_runs([with_steps(0, 100, 200), with_steps(0, 100, 200)], "step")
    assert alignment.axis.tolist() == [0, 100, 200]
    assert alignment.below.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert (alignment.largest_gap, alignment.left_out, alignment.remarks) == (0, (0, 0), ())


def test_checkpoints_are_paired_by_step_whatever_their_order_in_the_file():
    alignment = align_runs([with_steps(200, 0, 100), with_steps(0, 100, 200)], "step")
    assert alignment.below[0].tolist() == [1, 2, 0]


def test_the_steps_in_common_are_used_and_the_others_counted():
    alignment = align_runs([with_steps(0, 100, 200, 300), with_steps(100, 200, 400)], "step")
    assert alignment.axis.tolist() == [100, 200]
    assert alignment.left_out == (2, 1)
    assert "2 of 4, 1 of 3" in alignment.remarks[-1]


def test_different_grids_pair_the_nearest_within_half_a_spacing():
    alignment = align_runs([with_steps(0, 100, 200, 300), with_steps(10, 120, 240, 900)], "step")
    assert alignment.below.tolist() == [[0, 1, 2], [0, 1, 2]]
    assert alignment.largest_gap == 40
    assert alignment.tolerance == pytest.approx(60)
    assert "up to 40 steps away" in " ".join(alignment.remarks)


def test_no_checkpoint_is_used_twice():
    alignment = align_runs([with_steps(0, 10, 20, 30), with_steps(1, 101)], "step")
    for row in alignment.below:
        assert len(set(row.tolist())) == len(row)


def test_single_checkpoints_are_paired_however_far_apart():
    alignment = align_runs([with_steps(100), with_steps(5000)], "step")
    assert alignment.largest_gap == 4900
    assert np.isfinite(alignment.tolerance)


def test_runs_that_share_no_training_time_are_refused():
    with pytest.raises(SpecError, match="no training steps in common"):
        align_runs([with_steps(0, 10, 20), with_steps(5000, 5010, 5020)], "step")


def test_unknown_steps_pair_by_position_where_lengths_agree():
    alignment = align_runs([with_steps(-1, -1), with_steps(0, 100)], "step")
    assert alignment.by == "position"
    assert "not known" in alignment.remarks[0]
    with pytest.raises(SpecError, match="different lengths"):
        align_runs([with_steps(-1, -1), with_steps(0, 100, 200)], "step")


def test_by_loss_a_number_between_two_checkpoints_lies_on_a_log_scale_between_theirs():
    runs = [with_losses(2.0, 1.0), with_losses(2.0, 1.5, 1.0)]
    alignment = align_runs(runs, "loss")
    # Two levels, the ends of the overlap, as the shorter run has two checkpoints there.
    np.testing.assert_allclose(alignment.axis, [1.0, 2.0])
    between = align_runs([with_losses(3.0, 1.0), with_losses(2.5, 2.0, 1.5)], "loss")
    values = between.read(0, np.array([8.0, 2.0]))
    share = (between.axis - 1.0) / 2.0
    np.testing.assert_allclose(values, 2.0 ** (1 - share) * 8.0**share)


def test_by_loss_runs_of_one_landscape_agree_however_fast_they_train():
    """The value depends on the loss alone, so the comparison must show no difference."""
    fast = 2.3 * np.exp(-np.linspace(0, 4, 30))
    slow = 2.3 * np.exp(-np.linspace(0, 2, 40))
    alignment = align_runs([with_losses(*fast), with_losses(*slow)], "loss")
    first, other = alignment.read(0, 3 * fast**2), alignment.read(1, 3 * slow**2)
    # Interpolation is on log value against loss: off by under 2 % at these spacings.
    np.testing.assert_allclose(first, other, rtol=0.02)


def test_nothing_is_made_up_beside_a_number_that_is_not_finite():
    alignment = align_runs([with_losses(4.0, 3.0, 2.0, 1.0), with_losses(3.5, 2.5, 1.5)], "loss")
    values = alignment.read(0, np.array([1.0, np.nan, 1.0, 1.0]))
    assert np.isnan(values[alignment.axis > 2.0]).all()
    assert np.isfinite(values[alignment.axis <= 2.0]).all()


def test_checkpoints_whose_loss_is_not_finite_are_left_out_and_counted():
    alignment = align_runs([with_losses(3.0, np.nan, 1.0), with_losses(3.0, 2.0, 1.0)], "loss")
    assert alignment.left_out == (1, 0)
    assert 1 not in alignment.checkpoints(0)


def test_losses_that_do_not_overlap_are_refused():
    with pytest.raises(SpecError, match="do not overlap"):
        align_runs([with_losses(3.0, 2.0), with_losses(1.0, 0.5)], "loss")


def test_an_alignment_that_does_not_exist_is_refused():
    with pytest.raises(SpecError, match="no such alignment"):
        align_runs([with_steps(0), with_steps(0)], "epoch")
