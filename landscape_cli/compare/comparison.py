"""What a comparison says: numbers side by side, ratios, verdicts, and what to doubt."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from landscape_cli.compare.alignment import Alignment
    from landscape_cli.compare.quantities import Blemishes
    from landscape_cli.compare.settings import Difference
    from landscape_cli.runs import Run

NO_DIFFERENCE = "no clear difference"
CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Contrast:
    """One quantity along one direction, in two labels.

    Attributes:
        quantity: ``loss_range``, ``gradient_change``, ``beta``, ``limit`` or ``beta_times_lr``.
        title: what it is called in texts.
        unit: unit of the medians.
        direction: the direction that was probed.
        first: label of what it is held against.
        other: label of what is held against it.
        first_median: median over the pairs, NaN without any.
        other_median: the same of the other.
        ratio: geometric mean of other ÷ first over the pairs.
        median_ratio: median of other ÷ first over the pairs.
        interval: an interval for `ratio`; None where there are too few pairs or runs.
        pairs: points at which both sides are finite and positive.
        left_out: aligned points that are not.
        lower: the label that is lower, empty if the interval has 1 in it or is missing.
        warnings: what makes this contrast doubtful.
    """

    quantity: str
    title: str
    unit: str
    direction: str
    first: str
    other: str
    first_median: float
    other_median: float
    ratio: float
    median_ratio: float
    interval: tuple[float, float] | None
    pairs: int
    left_out: int
    warnings: tuple[str, ...] = ()

    @property
    def lower(self) -> str:
        """The label whose values are lower, as far as the interval can tell; else empty."""
        if self.interval is None or self.interval[0] <= 1 <= self.interval[1]:
            return ""
        return self.other if self.interval[1] < 1 else self.first

    @property
    def verdict(self) -> str:
        """``LABEL lower``, ``no clear difference``, or ``cannot tell`` without an interval."""
        if self.interval is None:
            return CANNOT_TELL
        return f"{self.lower} lower" if self.lower else NO_DIFFERENCE

    def finding(self) -> str:
        """Return one line that says what was seen, whichever way it came out."""
        article = "" if self.title.startswith("β") else "the "
        what = f"{article}{self.title} along {_along(self.direction)}"
        if not self.pairs:
            return f"{what}: {CANNOT_TELL}, no checkpoints have finite values in both"
        size = f"with {self.other} {what} is {self.ratio:.3g}× that with {self.first}"
        if self.interval is None:
            return f"{size} ({self._basis()}, too few for an interval): {CANNOT_TELL}"
        low, high = self.interval
        return f"{size} (95% interval {low:.3g} to {high:.3g}, {self._basis()}): {self.verdict}"

    def _basis(self) -> str:
        return f"{self.pairs} pair{'s' if self.pairs != 1 else ''} of checkpoints"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, None for what is not finite."""
        values = {**asdict(self), "lower": self.lower or None, "verdict": self.verdict}
        return {name: plain(value) for name, value in values.items()}


@dataclass(frozen=True)
class Pairing:
    """Two labels held against each other.

    Attributes:
        first: label of what it is held against.
        other: label of what is held against it.
        alignment: which checkpoints belong together.
        contrasts: every quantity along every direction in common.
        differences: settings that are not shared and should be.
        blemishes: by direction and label, what to doubt.
        method: how the intervals were made.
        warnings: what concerns the pair as a whole.
    """

    first: str
    other: str
    alignment: Alignment
    contrasts: tuple[Contrast, ...]
    differences: tuple[Difference, ...]
    blemishes: Mapping[str, Mapping[str, Blemishes]]
    method: str
    warnings: tuple[str, ...] = ()

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions in common, in the order of the first run."""
        return tuple(dict.fromkeys(contrast.direction for contrast in self.contrasts))

    def contrast(self, quantity: str, direction: str | None = None) -> Contrast:
        """Return one contrast; the first direction if none is named."""
        direction = self.directions[0] if direction is None else direction
        for item in self.contrasts:
            if (item.quantity, item.direction) == (quantity, direction):
                return item
        raise KeyError(f"{quantity} along {direction}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        alignment = self.alignment
        return {
            "first": self.first,
            "other": self.other,
            "alignment": {
                "by": alignment.by,
                "points": len(alignment.axis),
                "axis": [plain(value) for value in alignment.axis],
                "tolerance": plain(alignment.tolerance),
                "largest_gap": plain(alignment.largest_gap),
                "left_out": list(alignment.left_out),
                "remarks": list(alignment.remarks),
            },
            "method": self.method,
            "contrasts": [contrast.to_dict() for contrast in self.contrasts],
            "differences": [asdict(difference) for difference in self.differences],
            "blemishes": {
                direction: {label: asdict(item) for label, item in sides.items()}
                for direction, sides in self.blemishes.items()
            },
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class Comparison:
    """Runs held against the first label, pair by pair.

    Attributes:
        align: ``step`` or ``loss``, as asked for.
        labels: the labels, the one that everything is held against first.
        pairings: one for every further label.
        runs: the runs by label, for figures; not part of `to_dict`.
    """

    align: str
    labels: tuple[str, ...]
    pairings: tuple[Pairing, ...]
    runs: Mapping[str, tuple[Run, ...]] = field(repr=False, compare=False)

    def contrasts(self) -> Iterator[Contrast]:
        """Yield every contrast of every pairing."""
        for pairing in self.pairings:
            yield from pairing.contrasts

    def findings(self) -> list[str]:
        """Return one line per label and quantity, along the first direction in common.

        β*·lr is left out where it says the same as β*, the learning rates being equal.
        """
        lines = []
        for pairing in self.pairings:
            direction = pairing.directions[0]
            for contrast in pairing.contrasts:
                repeats = contrast.quantity == "beta_times_lr" and not any(
                    item.name == "learning rate" for item in pairing.differences
                )
                if contrast.direction == direction and not repeats:
                    lines.append(contrast.finding())
        return lines

    def warnings(self) -> list[str]:
        """Return everything that a reader should know before believing the verdicts, once."""
        lines: list[str] = []
        for pairing in self.pairings:
            lines.extend(pairing.alignment.remarks)
            lines.extend(str(difference) for difference in pairing.differences)
            lines.extend(pairing.warnings)
            lines.extend(text for contrast in pairing.contrasts for text in contrast.warnings)
        return list(dict.fromkeys(lines))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: no NaN, None in its place."""
        return {
            "align": self.align,
            "labels": list(self.labels),
            "runs": {label: [run.source for run in runs] for label, runs in self.runs.items()},
            "pairings": [pairing.to_dict() for pairing in self.pairings],
            "findings": self.findings(),
            "warnings": self.warnings(),
        }


def _along(direction: str) -> str:
    return "the gradient" if direction == "gradient" else direction


def plain(value: Any) -> Any:
    """Return a value that JSON has: None for a number that is not finite, lists for tuples."""
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
