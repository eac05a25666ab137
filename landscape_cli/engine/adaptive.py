"""Steps that are put where a line changes fastest, until its extremes are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from landscape_cli.points import point_arrays

Rows = dict[str, np.ndarray]
Evaluate = Callable[[np.ndarray], tuple[np.ndarray, Rows]]

LARGEST_ADDITION = 8
"""Points that are added to a line at a time, in its worst intervals."""
MOST_POINTS = 200
"""Points of a line at which refinement ends, whatever is known."""
NARROWEST = 1e-6
"""Width of an interval, relative to the steps around it, under which it is left alone."""


@dataclass(frozen=True)
class RefinedLine:
    """The points of a line that was refined.

    Attributes:
        multiples: the step multiples, ascending, shape (K,).
        columns: as a sweep gives them, shape (K, 5).
        rows: what the observers kept, points on the first axis.
        added: 1 where refinement added the point, shape (K,).
        settled: whether the extremes are known to the tolerance.
    """

    multiples: np.ndarray
    columns: np.ndarray
    rows: Rows
    added: np.ndarray
    settled: bool


def refine(
    evaluate: Evaluate, multiples: np.ndarray, tolerance: float, gradient_norm: float
) -> RefinedLine:
    """Evaluate a line on a grid, and then between its points as long as that can matter.

    Between two points a quantity q is taken to stray from the straight line by at most
    e = |q''| h²/4, twice what the parabolas through neighbouring points do. An interval is cut in
    half as long as the extremes of the smoothness, of the loss or of the gradient change could
    lie further out in it than they are known by more than the tolerance times their scale; or the
    status differs at its ends and they are further apart than the tolerance.

    Args:
        evaluate: takes multiples, shape (k,), and returns columns and rows.
        multiples: the grid to start from, ascending.
        tolerance: of β*, relative; of the losses and gradient changes, relative to their range.
        gradient_norm: ‖g‖₂ at θ₀.
    """
    line = _Line(evaluate, np.asarray(multiples, dtype=np.float64), gradient_norm)
    while len(line.multiples) < MOST_POINTS:
        worst = line.worst_intervals(tolerance)
        if not len(worst):
            return line.refined(settled=True)
        line.add(_middle(line.multiples[worst], line.multiples[worst + 1]))
    return line.refined(settled=not len(line.worst_intervals(tolerance)))


def _middle(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the geometric mean of positive ends, else the arithmetic one."""
    with np.errstate(invalid="ignore"):
        middle = np.where(left > 0, np.sqrt(np.abs(left * right)), (left + right) / 2)
    return np.asarray(middle)


class _Line:
    """The points that are known so far."""

    def __init__(self, evaluate: Evaluate, multiples: np.ndarray, gradient_norm: float) -> None:
        self._evaluate = evaluate
        self._norm = gradient_norm
        self.multiples = multiples
        self._columns, self._rows = evaluate(multiples)
        self._added = np.zeros(len(multiples), dtype=np.uint8)

    def add(self, multiples: np.ndarray) -> None:
        """Evaluate more points."""
        columns, rows = self._evaluate(multiples)
        together = np.concatenate([self.multiples, multiples])
        order = np.argsort(together, kind="stable")
        self.multiples = together[order]
        self._columns = np.concatenate([self._columns, columns])[order]
        self._added = np.concatenate([self._added, np.ones(len(multiples), np.uint8)])[order]
        self._rows = {
            path: np.concatenate([kept, rows[path]])[order] for path, kept in self._rows.items()
        }

    def refined(self, *, settled: bool) -> RefinedLine:
        """Return the points as they are."""
        return RefinedLine(self.multiples, self._columns, self._rows, self._added, settled)

    def worst_intervals(self, tolerance: float) -> np.ndarray:
        """Return the left ends of the intervals to cut, the worst few."""
        points = point_arrays(self._columns, self._norm)
        excess = self._status_excess(points["status"], tolerance)
        for name in ("loss", "gradient_change", "smoothness"):
            excess = np.maximum(excess, self._excess(name, points[name], tolerance))
        excess[self._relative_widths() < NARROWEST] = 0
        worst = np.flatnonzero(excess > 1)
        return worst[np.argsort(-excess[worst], kind="stable")][:LARGEST_ADDITION]

    def _relative_widths(self) -> np.ndarray:
        size = np.maximum(np.abs(self.multiples[:-1]), np.abs(self.multiples[1:]))
        return np.diff(self.multiples) / np.where(size > 0, size, 1)

    def _status_excess(self, status: np.ndarray, tolerance: float) -> np.ndarray:
        differs = status[:-1] != status[1:]
        return np.where(differs, self._relative_widths() / tolerance, 0.0)

    def _excess(self, name: str, values: np.ndarray, tolerance: float) -> np.ndarray:
        """Return by how many tolerances the extremes could be wrong in every interval."""
        known = values[np.isfinite(values)]
        if len(known) < 2:
            return np.zeros(len(values) - 1)
        scale = np.abs(known).max() if name == "smoothness" else np.ptp(known)
        if scale == 0:
            return np.zeros(len(values) - 1)
        strays = _strays(self.multiples, values)
        with np.errstate(invalid="ignore"):
            above = np.fmax(values[:-1], values[1:]) + strays - known.max()
            below = known.min() - (np.fmin(values[:-1], values[1:]) - strays)
        beyond = above if name == "smoothness" else np.fmax(above, below)
        return np.asarray(np.nan_to_num(beyond / (tolerance * scale), nan=0.0))


def _strays(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return |q''| h²/4 in every interval, q'' the larger of those at its two ends."""
    widths = np.diff(x)
    slopes = np.diff(values) / widths
    bends = np.abs(np.diff(slopes) / (widths[:-1] + widths[1:]))  # q''/2 at inner points
    at_points = np.concatenate([bends[:1], bends, bends[-1:]]) if len(bends) else np.zeros(len(x))
    bend = np.fmax(at_points[:-1], at_points[1:])
    return np.asarray(np.nan_to_num(bend) * widths**2 / 2)
