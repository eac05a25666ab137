"""Intervals over seeds, against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from landscape_cli.studies.estimates import Estimate, mean_over_seeds, ratio_over_seeds


def test_the_interval_of_a_mean_is_students() -> None:
    values = np.array([0.3, 1.7, 0.9, 2.2, -0.4])
    found = mean_over_seeds(values.tolist())
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.value == pytest.approx(values.mean(), rel=1e-12)
    assert found.interval == pytest.approx((expected.low, expected.high), rel=1e-6)


def test_the_interval_of_a_ratio_is_students_of_the_logarithms() -> None:
    first, other = np.array([1.0, 2.0, 5.0]), np.array([3.0, 2.5, 40.0])
    found = ratio_over_seeds(other.tolist(), first.tolist())
    logs = np.log(other / first)
    expected = stats.ttest_1samp(logs, 0.0).confidence_interval(0.95)
    assert found.value == pytest.approx(stats.gmean(other / first), rel=1e-12)
    assert found.interval == pytest.approx(np.exp([expected.low, expected.high]), rel=1e-6)


def test_what_is_not_finite_is_left_out_and_counted() -> None:
    found = mean_over_seeds([1.0, math.nan, 3.0, math.inf])
    assert (found.value, found.seeds, found.left_out) == (2.0, 2, 2)
    assert "2 seeds without a finite number" in str(found)


def test_ratios_that_are_not_positive_are_left_out() -> None:
    found = ratio_over_seeds([1.0, -1.0, 0.0, 4.0], [1.0, 1.0, 1.0, 0.0])
    assert (found.value, found.seeds, found.left_out) == (1.0, 1, 3)


def test_one_seed_decides_nothing() -> None:
    alone = mean_over_seeds([5.0])
    assert alone.interval is None
    assert alone.above(0.0) is None
    assert alone.below(10.0) is None
    assert str(alone) == "5 (one seed)"


def test_no_finite_number_is_said_to_be_none() -> None:
    assert str(mean_over_seeds([math.nan])) == "no finite number"


@pytest.mark.parametrize(
    ("interval", "below", "above", "within"),
    [
        ((0.1, 0.4), True, False, False),
        ((1.2, 1.8), False, True, True),
        ((0.8, 1.3), None, None, None),
        ((2.1, 3.0), False, True, False),
        ((1.5, 2.5), False, True, None),
    ],
)
def test_an_interval_decides_only_what_it_leaves_no_doubt_about(
    interval, below, above, within
) -> None:
    estimate = Estimate(sum(interval) / 2, interval, 5)
    assert estimate.below(1.0) is below
    assert estimate.above(1.0) is above
    assert estimate.within(1.0, 2.0) is within


def test_an_interval_that_overflows_decides_nothing() -> None:
    assert Estimate(1.0, (0.0, math.inf), 2).below(1.0) is None
