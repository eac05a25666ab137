"""Which checkpoints of two runs belong together: by training step, or by loss."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from landscape_cli.errors import SpecError

if TYPE_CHECKING:
    from landscape_cli.runs import Run

Align = Literal["step", "loss"]
ALIGNMENTS: tuple[str, ...] = get_args(Align)
UNKNOWN_STEP = -1


@dataclass(frozen=True)
class Alignment:
    """Where two or more runs are read so that their numbers belong together.

    Attributes:
        by: ``step``, ``loss``, or ``position`` where the training steps are not known.
        axis: training step, loss or position of the aligned points, ascending, shape (N,).
        below: for every run, the index of the checkpoint on one side of each point, shape
            (runs, N).
        above: the index on the other side; the same checkpoint unless the alignment interpolates.
        weight: the share of `above`, from 0 to 1.
        tolerance: largest difference of training steps that was allowed, 0 if they had to be equal.
        largest_gap: largest difference of training steps in a pair.
        left_out: for every run, checkpoints that have no partner.
        remarks: what a reader should know, one line each.
    """

    by: str
    axis: np.ndarray
    below: np.ndarray
    above: np.ndarray
    weight: np.ndarray
    tolerance: float = 0.0
    largest_gap: float = 0.0
    left_out: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()

    def read(self, which: int, values: np.ndarray) -> np.ndarray:
        """Return a run's values at the aligned points, on a log scale in between.

        A point between two checkpoints of which one is not finite and positive is NaN: nothing is
        made up.

        Args:
            which: index of the run.
            values: one number per checkpoint of that run.

        Returns:
            Shape (N,), NaN where there is no number.
        """
        values = np.asarray(values, dtype=np.float64)
        low, high = values[self.below[which]], values[self.above[which]]
        weight = self.weight[which]
        with np.errstate(divide="ignore", invalid="ignore"):
            between = np.exp((1 - weight) * np.log(low) + weight * np.log(high))
        usable = (low > 0) & (high > 0) & np.isfinite(low) & np.isfinite(high)
        between = np.where(usable, between, np.nan)
        return np.where(weight == 0, low, np.where(weight == 1, high, between))

    def checkpoints(self, which: int) -> np.ndarray:
        """Return the indices of a run's checkpoints that the aligned points rest on."""
        below = self.below[which][self.weight[which] < 1]
        above = self.above[which][self.weight[which] > 0]
        return np.union1d(below, above)


def align_runs(runs: list[Run], by: str) -> Alignment:
    """Return the points at which the runs can be compared.

    By step: the training steps that all runs have; where these are less than half of the
    shortest run, every checkpoint of it with the nearest of each other run, each used once, if it
    is within half the usual spacing. By loss: as many levels as the shortest run has checkpoints,
    evenly spaced where the runs' losses overlap, with numbers interpolated in between.

    Raises:
        SpecError: If there is nothing in common.
    """
    if by == "loss":
        return _align_by_loss(runs)
    if by != "step":
        raise SpecError("no such alignment", seen=by, hint=f"--align {' or '.join(ALIGNMENTS)}")
    steps = [np.asarray(run["training_step"], dtype=np.int64) for run in runs]
    if any((values == UNKNOWN_STEP).any() for values in steps):
        return _align_by_position(steps)
    orders = [np.unique(values, return_index=True)[1] for values in steps]
    counts = [len(values) for values in steps]
    ordered = [values[order] for values, order in zip(steps, orders, strict=True)]
    common = functools.reduce(np.intersect1d, ordered)
    shortest = min(len(values) for values in ordered)
    if len(common) and 2 * len(common) >= shortest:
        positions = np.stack([np.searchsorted(values, common) for values in ordered])
        return _by_step(ordered, orders, positions, 0.0, counts)
    return _align_nearest(ordered, orders, counts)


def _by_step(
    ordered: list[np.ndarray],
    orders: list[np.ndarray],
    positions: np.ndarray,
    tolerance: float,
    counts: list[int],
) -> Alignment:
    """Return the pairs at `positions` of the ascending training steps."""
    matched = np.stack([values[row] for values, row in zip(ordered, positions, strict=True)])
    gap = float((matched.max(0) - matched.min(0)).max(initial=0))
    left_out = tuple(count - positions.shape[1] for count in counts)
    indices = np.stack([order[row] for order, row in zip(orders, positions, strict=True)])
    return Alignment(
        by="step",
        axis=matched[0].astype(np.float64),
        below=indices,
        above=indices,
        weight=np.zeros(indices.shape),
        tolerance=tolerance if np.isfinite(tolerance) else gap,
        largest_gap=gap,
        left_out=left_out,
        remarks=_step_remarks(ordered, counts, left_out, gap),
    )


def _step_remarks(
    ordered: list[np.ndarray], counts: list[int], left_out: tuple[int, ...], gap: float
) -> tuple[str, ...]:
    remarks = []
    if any(len(values) < count for values, count in zip(ordered, counts, strict=True)):
        remarks.append("a training step occurs more than once in a run: the first one counts")
    if gap:
        remarks.append(
            "the training steps differ: each checkpoint is held against the nearest one, "
            f"up to {gap:g} steps away"
        )
    if any(left_out):
        shares = ", ".join(f"{out} of {count}" for out, count in zip(left_out, counts, strict=True))
        remarks.append(f"checkpoints without a partner, run by run: {shares}")
    return tuple(remarks)


def _align_nearest(
    ordered: list[np.ndarray], orders: list[np.ndarray], counts: list[int]
) -> Alignment:
    tolerance = _tolerance(ordered)
    shortest = min(range(len(ordered)), key=lambda index: len(ordered[index]))
    rows = [_nearest(ordered[shortest], values) for values in ordered]
    gaps = [
        np.abs(values[row] - ordered[shortest]) for values, row in zip(ordered, rows, strict=True)
    ]
    keep = np.max(gaps, axis=0) <= tolerance
    for row, values in zip(rows, ordered, strict=True):
        back = _nearest(values, ordered[shortest])
        keep &= back[row] == np.arange(len(row))
    if not keep.any():
        spans = "; ".join(f"{values[0]} to {values[-1]}" for values in ordered)
        raise SpecError(
            "the runs have no training steps in common", seen=spans, hint="--align loss"
        )
    return _by_step(ordered, orders, np.stack(rows)[:, keep], tolerance, counts)


def _tolerance(ordered: list[np.ndarray]) -> float:
    """Return half the widest usual spacing; single checkpoints may be any distance apart."""
    spacings = [float(np.median(np.diff(values))) for values in ordered if len(values) > 1]
    return max(spacings) / 2 if spacings else float("inf")


def _nearest(wanted: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return for every wanted number the index of the nearest value, both ascending."""
    right = np.clip(np.searchsorted(values, wanted), 1, max(len(values) - 1, 1))
    left = right - 1
    right = np.minimum(right, len(values) - 1)
    return np.where(wanted - values[left] <= values[right] - wanted, left, right)


def _align_by_position(steps: list[np.ndarray]) -> Alignment:
    counts = [len(values) for values in steps]
    if len(set(counts)) > 1:
        raise SpecError(
            "the training steps are not known and the runs have different lengths",
            seen=f"{', '.join(map(str, counts))} checkpoints",
            hint="--align loss",
        )
    indices = np.tile(np.arange(counts[0]), (len(steps), 1))
    remark = "the training steps are not known: checkpoints are held against each other in order"
    return Alignment(
        by="position",
        axis=np.arange(counts[0], dtype=np.float64),
        below=indices,
        above=indices,
        weight=np.zeros(indices.shape),
        left_out=tuple(0 for _ in steps),
        remarks=(remark,),
    )


def _align_by_loss(runs: list[Run]) -> Alignment:
    losses = [np.asarray(run["base_loss"], dtype=np.float64) for run in runs]
    orders = [_ascending(values) for values in losses]
    ordered = [values[order] for values, order in zip(losses, orders, strict=True)]
    low, high = _overlap(ordered)
    inside = [(values >= low) & (values <= high) for values in ordered]
    count = max(1, min(int(mask.sum()) for mask in inside))
    space = np.geomspace if low > 0 else np.linspace
    levels = np.clip(space(low, high, count), low, high)
    brackets = [
        _bracket(values, order, levels) for values, order in zip(ordered, orders, strict=True)
    ]
    below, above, weight = (np.stack(parts) for parts in zip(*brackets, strict=True))
    left_out = tuple(
        len(values) - int(mask.sum()) for values, mask in zip(losses, inside, strict=True)
    )
    shares = ", ".join(
        f"{out} of {len(values)}" for out, values in zip(left_out, losses, strict=True)
    )
    remark = (
        f"compared where the losses overlap, {low:.4g} to {high:.4g}, at {count} levels; "
        f"checkpoints outside, run by run: {shares}"
    )
    return Alignment(
        by="loss",
        axis=levels,
        below=below,
        above=above,
        weight=weight,
        left_out=left_out,
        remarks=(remark,),
    )


def _ascending(values: np.ndarray) -> np.ndarray:
    """Return the indices of the finite values, ascending, equal ones in their order."""
    order = np.argsort(values, kind="stable")
    return np.asarray(order[np.isfinite(values[order])])


def _overlap(ordered: list[np.ndarray]) -> tuple[float, float]:
    if any(not len(values) for values in ordered):
        raise SpecError(
            "a run has no finite loss to align by", seen="NaN or infinity", hint="--align step"
        )
    low = float(max(values[0] for values in ordered))
    high = float(min(values[-1] for values in ordered))
    if low > high:
        spans = "; ".join(f"{values[0]:.4g} to {values[-1]:.4g}" for values in ordered)
        raise SpecError("the runs' losses do not overlap", seen=spans, hint="--align step")
    return low, high


def _bracket(
    values: np.ndarray, order: np.ndarray, levels: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the checkpoints on both sides of every level, and how far it is to the second."""
    distinct, first = np.unique(values, return_index=True)
    right = np.clip(np.searchsorted(distinct, levels), 0, len(distinct) - 1)
    left = np.maximum(right - 1, 0)
    width = distinct[right] - distinct[left]
    weight = np.divide(levels - distinct[left], width, out=np.ones(len(levels)), where=width > 0)
    return order[first[left]], order[first[right]], np.clip(weight, 0, 1)
