"""Numbers over seeds with their intervals, and what an interval decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from landscape_cli.compare.statistics import student_quantile


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, with a 95 % interval.

    Attributes:
        value: the mean; of ratios the geometric one.
        interval: Student's; None of a single seed.
        seeds: how many were finite.
        left_out: how many were not.
    """

    value: float
    interval: tuple[float, float] | None
    seeds: int
    left_out: int = 0

    def below(self, level: float) -> bool | None:
        """Say whether it is below a level; None where the interval has both sides."""
        if self.interval is None or not all(map(math.isfinite, self.interval)):
            return None
        low, high = self.interval
        return True if high < level else False if low > level else None

    def above(self, level: float) -> bool | None:
        """Say whether it is above a level; None where the interval has both sides."""
        return None if (found := Estimate.below(self, level)) is None else not found

    def within(self, low: float, high: float) -> bool | None:
        """Say whether it is between two levels; None where the interval sticks out on one side."""
        found = (self.above(low), self.below(high))
        return False if False in found else None if None in found else True

    def __str__(self) -> str:
        if self.seeds == 0:
            return "no finite number"
        text = f"{self.value:.3g}"
        if self.interval is not None:
            text += f" ({self.interval[0]:.3g} to {self.interval[1]:.3g}, {self.seeds} seeds)"
        else:
            text += " (one seed)"
        return f"{text}, {self.left_out} seeds without a finite number" if self.left_out else text


def mean_over_seeds(values: Sequence[float]) -> Estimate:
    """Return the mean of one number per seed, with Student's interval.

    Example:
        >>> str(mean_over_seeds([1.0, 2.0, 3.0]))
        '2 (-0.484 to 4.48, 3 seeds)'
    """
    numbers = np.asarray(values, dtype=np.float64)
    finite = numbers[np.isfinite(numbers)]
    count, missing = len(finite), int((~np.isfinite(numbers)).sum())
    if not count:
        return Estimate(math.nan, None, 0, missing)
    centre = float(finite.mean())
    if count == 1:
        return Estimate(centre, None, 1, missing)
    margin = student_quantile(0.975, count - 1) * float(finite.std(ddof=1)) / math.sqrt(count)
    return Estimate(centre, (centre - margin, centre + margin), count, missing)


def ratio_over_seeds(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate:
    """Return the geometric mean of ratios, paired by seed; its interval is of the logarithms.

    Ratios that are not finite and positive are left out and counted.

    Example:
        >>> ratio_over_seeds([2.0, 8.0], [1.0, 1.0]).value
        4.0
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios = np.asarray(numerators, np.float64) / np.asarray(denominators, np.float64)
        logs = mean_over_seeds(np.where(ratios > 0, np.log(ratios), np.nan).tolist())
    with np.errstate(over="ignore"):
        ends = None if logs.interval is None else tuple(np.exp(logs.interval).tolist())
        value = float(np.exp(logs.value))
    return Estimate(value, ends, logs.seeds, logs.left_out)
