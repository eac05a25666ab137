from __future__ import annotations

import numpy as np
import pytest

from landscape_cli.errors import SpecError
from landscape_cli.measures.effective_smoothness import effective_smoothness, find_peak
from landscape_cli.measures.gradient_predictiveness import gradient_predictiveness
from landscape_cli.measures.loss_range import loss_range
from landscape_cli.points import point_arrays


def points_of(smoothness: list[float], sizes: np.ndarray) -> dict[str, np.ndarray]:
    change = np.array(smoothness) * sizes
    columns = np.stack([sizes, sizes**2, change**2, sizes, sizes**2], axis=1)
    return point_arrays(columns, gradient_norm=1.0)


def test_point_arrays_are_the_roots_and_ratios_of_the_columns() -> None:
    columns = np.array([[0.5, 4.0, 9.0, -1.0, 0.25]])
    points = point_arrays(columns, gradient_norm=2.0)
    assert points["loss"][0] == 0.5
    assert points["gradient_change"][0] == 3
    assert points["gradient_cosine"][0] == -0.25
    assert points["distance"][0] == 0.5
    assert points["smoothness"][0] == 6
    assert points["status"].tolist() == [1]


def test_statuses_say_what_is_not_finite_and_the_values_stay() -> None:
    columns = np.array([[np.inf, 1, 1, 1, 1], [1, np.inf, np.inf, 1, 1], [np.nan] * 4 + [1]])
    points = point_arrays(columns, gradient_norm=1.0)
    assert points["status"].tolist() == [2, 3, 2]
    assert points["loss"][0] == np.inf
    assert points["gradient_change"][1] == np.inf


def test_the_smoothness_is_not_defined_where_nothing_moved() -> None:
    points = point_arrays(np.array([[1.0, 1.0, 0.0, 1.0, 0.0]]), gradient_norm=1.0)
    assert np.isnan(points["smoothness"][0])


def test_ranges_are_over_the_finite_values_and_count_the_others() -> None:
    values = np.array([3.0, np.nan, 1.0, np.inf])
    assert loss_range(values) == {"minimum": 1, "maximum": 3, "not_finite": 2}
    assert gradient_predictiveness(values)["not_finite"] == 2
    empty = loss_range(np.array([np.nan]))
    assert np.isnan(empty["minimum"])
    assert empty["not_finite"] == 1


def test_smoothness_at_distance_zero_is_refused() -> None:
    with pytest.raises(SpecError, match="distance zero"):
        effective_smoothness(np.ones(2), np.array([0.0, 1.0]))


SIZES = np.array([0.5, 1.0, 2.0])


def test_a_peak_in_the_middle_is_not_at_the_smallest_step() -> None:
    peak = find_peak(points_of([1, 3, 2], SIZES), SIZES, 1.0)
    assert (peak.beta, peak.index, peak.at_smallest_step, peak.saturated) == (3, 1, False, False)


def test_a_peak_at_the_smallest_step_is_saturated_if_the_gradient_has_changed_by_half() -> None:
    peak = find_peak(points_of([2, 1, 0.5], SIZES), SIZES, 1.0)
    assert peak.at_smallest_step
    assert peak.saturated
    peak = find_peak(points_of([2, 1, 0.5], SIZES), SIZES, 10.0)
    assert peak.at_smallest_step
    assert not peak.saturated


@pytest.mark.parametrize(("excess", "expected"), [(0.5e-6, False), (2e-6, True)])
def test_a_larger_step_within_a_millionth_clears_the_flag(excess: float, expected: bool) -> None:
    peak = find_peak(points_of([1 + excess, 1, 0.5], SIZES), SIZES, 1.0)
    assert peak.at_smallest_step is expected


def test_the_smallest_step_of_a_two_sided_grid_is_the_nearest() -> None:
    sizes = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    peak = find_peak(points_of([1, 1, 0, 3, 1], sizes), sizes, 100.0)
    assert peak.at_smallest_step
    assert peak.index == 3


def test_no_finite_point_gives_no_peak() -> None:
    columns = np.full((2, 5), np.nan)
    peak = find_peak(point_arrays(columns, 1.0), SIZES[:2], 1.0)
    assert np.isnan(peak.beta)
    assert peak.index == -1
    assert not peak.at_smallest_step
