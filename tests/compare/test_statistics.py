"""Intervals against scipy, and their coverage in simulations."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from landscape_cli.compare.statistics import (
    _asked_for_length,
    block_bootstrap,
    block_length,
    difference_interval,
    mean_of_rows,
    median_of_rows,
    series_interval,
    student_quantile,
)


def autocorrelated(count: int, correlation: float, generator: np.random.Generator) -> np.ndarray:
    """A stationary AR(1) series of mean 0."""
    series = np.empty(count)
    series[0] = generator.standard_normal() / np.sqrt(1 - correlation**2)
    for index in range(1, count):
        series[index] = correlation * series[index - 1] + generator.standard_normal()
    return series


@pytest.mark.parametrize("freedom", [1, 1.5, 2, 3.3, 10, 100, 2000])
@pytest.mark.parametrize("probability", [0.9, 0.975, 0.995])
def test_student_quantiles_are_those_of_scipy(probability, freedom):
    expected = scipy.stats.t.ppf(probability, freedom)
    assert student_quantile(probability, freedom) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("statistic", "plain"), [(mean_of_rows, np.mean), (median_of_rows, np.median)]
)
def test_with_blocks_of_one_the_bootstrap_is_that_of_scipy(statistic, plain):
    sample = np.random.default_rng(3).gamma(2.0, size=80)
    ours = np.quantile(
        block_bootstrap(sample, statistic, length=1, resamples=20000), [0.025, 0.975]
    )
    theirs = scipy.stats.bootstrap(
        (sample,), plain, n_resamples=20000, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    width = theirs.high - theirs.low
    # Two independent sets of 20,000 resamples: quantiles differ by a few percent of the width.
    np.testing.assert_allclose(ours, [theirs.low, theirs.high], atol=0.05 * width)


def test_blocks_keep_neighbours_together():
    series = np.arange(12.0)
    seen = []

    def record(samples: np.ndarray) -> np.ndarray:
        seen.append(samples)
        return samples.mean(axis=1)

    block_bootstrap(series, record, length=4, resamples=50)
    steps = np.diff(seen[0].reshape(50, 3, 4), axis=2) % 12
    assert (steps == 1).all()


def test_the_bootstrap_variance_of_a_mean_grows_with_autocorrelation_as_it_should():
    series = autocorrelated(4000, 0.6, np.random.default_rng(0))
    replicates = block_bootstrap(series, length=60, resamples=2000)
    # Long-run variance of AR(1): σ²/(1−ρ)². Blocks of 60 lose about 5 %, simulation about 5 %.
    assert replicates.var() * 4000 == pytest.approx(1 / (1 - 0.6) ** 2, rel=0.2)


def test_blocks_are_longer_for_longer_memory():
    generator = np.random.default_rng(1)
    lengths = [
        np.mean([block_length(autocorrelated(300, rho, generator)) for _ in range(20)])
        for rho in (0.0, 0.8, 0.95)
    ]
    assert lengths[0] < lengths[1] < lengths[2]
    assert lengths[0] == pytest.approx(np.sqrt(300), rel=0.1)


@pytest.mark.parametrize("correlation", [0.5, 0.8])
def test_the_length_asked_for_is_the_best_one_of_an_autoregression(correlation):
    generator = np.random.default_rng(2)
    lengths = [_asked_for_length(autocorrelated(4000, correlation, generator)) for _ in range(20)]
    # For AR(1), G = 2ρσ²/((1−ρ)³(1+ρ)) and D = (4/3)·σ⁴/(1−ρ)⁴, so b = (2ρ/(1−ρ²))^⅔·(1.5N)^⅓.
    best = (2 * correlation / (1 - correlation**2)) ** (2 / 3) * (1.5 * 4000) ** (1 / 3)
    assert np.mean(lengths) == pytest.approx(best, rel=0.15)


@pytest.mark.parametrize(
    ("count", "correlation", "least"),
    [(8, 0.0, 0.93), (20, 0.0, 0.93), (60, 0.0, 0.91), (60, 0.5, 0.86), (60, 0.8, 0.76)],
)
def test_intervals_cover_the_mean_about_as_often_as_documented(count, correlation, least):
    generator = np.random.default_rng(count)
    trials = 250
    covered = 0
    for _ in range(trials):
        interval = series_interval(autocorrelated(count, correlation, generator))
        assert interval is not None
        covered += interval[0] <= 0 <= interval[1]
    # `least` is the documented coverage less two standard errors of 250 trials.
    assert covered / trials >= least


def test_ordinary_intervals_would_not_cover_an_autocorrelated_mean():
    """The reason for blocks: without them 60 points at 0.8 cover in about half of the cases."""
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(100):
        replicates = block_bootstrap(autocorrelated(60, 0.8, generator), length=1, resamples=500)
        low, high = np.quantile(replicates, [0.025, 0.975])
        covered += low <= 0 <= high
    assert covered < 70


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_too_few_points_have_no_interval(count):
    assert series_interval(np.arange(float(count))) is None


def test_a_constant_series_has_an_interval_of_no_width():
    assert series_interval(np.full(10, 2.5)) == (2.5, 2.5)


def test_intervals_are_the_same_every_time():
    series = np.random.default_rng(0).standard_normal(30)
    assert series_interval(series) == series_interval(series)


@pytest.mark.parametrize("sizes", [(3, 3), (2, 5), (4, 2)])
def test_differences_of_runs_have_welchs_interval(sizes):
    generator = np.random.default_rng(sum(sizes))
    first, other = (generator.normal(size=size, scale=1 + size) for size in sizes)
    expected = scipy.stats.ttest_ind(other, first, equal_var=False).confidence_interval()
    assert difference_interval(first, other) == pytest.approx((expected.low, expected.high))


def test_a_single_run_is_taken_to_vary_as_the_other_side_does():
    first, other = np.array([1.0, 2.0, 4.0]), np.array([5.0])
    margin = scipy.stats.t.ppf(0.975, 2) * np.std(first, ddof=1) * np.sqrt(1 / 3 + 1)
    centre = 5.0 - first.mean()
    assert difference_interval(first, other) == pytest.approx((centre - margin, centre + margin))


def test_two_single_runs_have_no_interval_over_runs():
    assert difference_interval(np.array([1.0]), np.array([2.0])) is None
