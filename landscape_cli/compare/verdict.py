"""From aligned runs to contrasts: ratios, their intervals, and warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from landscape_cli.compare.comparison import Contrast
from landscape_cli.compare.quantities import Blemishes, Quantity
from landscape_cli.compare.statistics import difference_interval, series_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from landscape_cli.compare.alignment import Alignment
    from landscape_cli.runs import Run

OVER_CHECKPOINTS = (
    "95% intervals by a circular block bootstrap over the checkpoints, neighbours kept together, "
    "stretched for few blocks"
)
OVER_RUNS = "95% intervals over runs: Welch's t of the runs' mean logarithms"
ONE_RUN_EACH = (
    "one run per label: the intervals are about these two trajectories, "
    "not about what other seeds would give"
)


class Sides:
    """The runs of two labels, aligned.

    Args:
        first: label of what it is held against, and its runs.
        other: label of what is held against it, and its runs.
        alignment: of all these runs, those of `first` before those of `other`.
    """

    def __init__(
        self,
        first: tuple[str, Sequence[Run]],
        other: tuple[str, Sequence[Run]],
        alignment: Alignment,
    ) -> None:
        self.labels = (first[0], other[0])
        self.runs = [*first[1], *other[1]]
        self.split = len(first[1])
        self.alignment = alignment

    @property
    def repeated(self) -> bool:
        """Whether a label has several runs, so that intervals can be over runs."""
        return len(self.runs) > 2

    def read(self, quantity: Quantity, direction: str) -> np.ndarray:
        """Return a quantity of every run at the aligned points, shape (runs, N)."""
        return np.stack(
            [
                self.alignment.read(
                    index, quantity.values(run)[:, run.labels("direction").index(direction)]
                )
                for index, run in enumerate(self.runs)
            ]
        )

    def blemishes(self, direction: str) -> dict[str, Blemishes]:
        """Return what to doubt, by label: the worst of its runs."""
        found = [
            Blemishes.of(
                run, run.labels("direction").index(direction), self.alignment.checkpoints(index)
            )
            for index, run in enumerate(self.runs)
        ]
        sides = (found[: self.split], found[self.split :])
        return {label: _worst(side) for label, side in zip(self.labels, sides, strict=True)}


def contrast_sides(
    sides: Sides, quantity: Quantity, direction: str, blemishes: Mapping[str, Blemishes]
) -> Contrast:
    """Return one quantity along one direction held against the other side.

    Ratios are of points where every run is finite and positive; the others are left out and
    counted. With one run on each side the interval is over the checkpoints, else over the runs.
    """
    values = sides.read(quantity, direction)
    usable = (np.isfinite(values) & (values > 0)).all(axis=0)
    logs = np.log(values[:, usable])
    first, other = logs[: sides.split], logs[sides.split :]
    pairs = int(usable.sum())
    ratios = other.mean(axis=0) - first.mean(axis=0)
    return Contrast(
        quantity=quantity.name,
        title=quantity.title,
        unit=quantity.unit,
        direction=direction,
        first=sides.labels[0],
        other=sides.labels[1],
        first_median=_median(np.exp(first)),
        other_median=_median(np.exp(other)),
        ratio=float(np.exp(ratios.mean())) if pairs else np.nan,
        median_ratio=float(np.exp(np.median(ratios))) if pairs else np.nan,
        interval=_interval(sides, first, other),
        pairs=pairs,
        left_out=len(usable) - pairs,
        warnings=tuple(_warnings(quantity, direction, blemishes, len(usable) - pairs, len(usable))),
    )


def _interval(sides: Sides, first: np.ndarray, other: np.ndarray) -> tuple[float, float] | None:
    if not first.shape[1]:
        return None
    if sides.repeated:
        ends = difference_interval(first.mean(axis=1), other.mean(axis=1))
    else:
        ends = series_interval(other[0] - first[0])
    return None if ends is None else (float(np.exp(ends[0])), float(np.exp(ends[1])))


def _median(values: np.ndarray) -> float:
    return float(np.median(values)) if values.size else np.nan


def _worst(side: Sequence[Blemishes]) -> Blemishes:
    return Blemishes(
        saturated=max(item.saturated for item in side),
        at_smallest_step=max(item.at_smallest_step for item in side),
        not_finite=max(item.not_finite for item in side),
        below_noise_floor=max(item.below_noise_floor for item in side),
        not_measured=max(item.not_measured for item in side),
    )


def _warnings(
    quantity: Quantity,
    direction: str,
    blemishes: Mapping[str, Blemishes],
    left_out: int,
    points: int,
) -> list[str]:
    texts = []
    if left_out:
        texts.append(
            f"{quantity.title} along {direction}: {left_out} of {points} points left out, "
            "not finite and positive in both"
        )
    for label, item in blemishes.items():
        where = f"in {label} along {direction}"
        if quantity.on_grid and item.saturated:
            texts.append(
                f"β* is saturated at {_percent(item.saturated)} of the checkpoints {where}: there "
                "it reflects the smallest step (about 1/a), not the network"
            )
        if quantity.on_grid and item.at_smallest_step > item.saturated:
            texts.append(
                f"β* is reached at the smallest step alone at {_percent(item.at_smallest_step)} "
                f"of the checkpoints {where}: smaller steps may give more"
            )
        if item.not_finite and quantity.name != "limit":
            texts.append(
                f"{_percent(item.not_finite)} of the points are not finite {where}: ranges and "
                "maxima are over the others, and so too low"
            )
        if item.below_noise_floor and quantity.name in ("gradient_change", "beta"):
            texts.append(
                f"the gradient change is within the noise floor at "
                f"{_percent(item.below_noise_floor)} of the points {where}"
            )
        if item.not_measured:
            texts.append(f"{_percent(item.not_measured)} of the points are not measured {where}")
    return texts


def _percent(share: float) -> str:
    return "under 1%" if 0 < share < 0.01 else f"{100 * share:.0f}%"
