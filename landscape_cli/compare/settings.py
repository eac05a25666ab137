"""What differs between the settings of runs, and what that does to a comparison."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from landscape_cli.runs import Run

CONSEQUENCES = {
    "data": "the objectives are not the same",
    "loss": "the objectives are not the same",
    "batch_size": "the objectives are not the same, nor are batch statistics",
    "batches": "the objectives are not the same",
    "norm_mode": "normalisation layers are not treated alike",
    "steps": "ranges and maxima are over different steps",
    "dtype": "rounding is not the same",
    "allow_tf32": "rounding is not the same",
    "parameters": "gradients and distances are over different parameters",
    "weights": "different copies of the weights are measured",
}
"""Settings that should be equal, and what it means where they are not."""


@dataclass(frozen=True)
class Difference:
    """A setting that two sides of a comparison do not share.

    Attributes:
        name: as in the settings of a run.
        first: its value in the first side; several are joined by commas.
        other: its value in the other side.
        consequence: what that means for the comparison.
    """

    name: str
    first: str
    other: str
    consequence: str

    def __str__(self) -> str:
        return f"{self.name} differs ({self.first} against {self.other}): {self.consequence}"


def find_differences(first: Sequence[Run], other: Sequence[Run]) -> tuple[Difference, ...]:
    """Return what differs between two sides and should not, most telling first.

    Model and checkpoints are what is compared, so they may differ. Seeds matter only where each
    side is one run: several runs of a side are there to differ in it.
    """
    found = [
        _difference(name, _setting(name), first, other, consequence)
        for name, consequence in CONSEQUENCES.items()
    ]
    consequence = "the same multiples are different step sizes"
    found.append(_difference("learning rate", _learning_rates, first, other, consequence))
    if len(first) == len(other) == 1:
        consequence = "batches and random directions are not the same, so pairs are less alike"
        found.append(_difference("seed", _setting("seed"), first, other, consequence))
    if not any(item.name == "data" for item in found if item):
        consequence = "the samples measured are not the same"
        found.append(_difference("data hash", _data_hash, first, other, consequence))
    return tuple(item for item in found if item is not None)


def _difference(
    name: str,
    read: Callable[[Run], str],
    first: Sequence[Run],
    other: Sequence[Run],
    consequence: str,
) -> Difference | None:
    sides = [", ".join(dict.fromkeys(map(read, side))) for side in (first, other)]
    return None if sides[0] == sides[1] else Difference(name, sides[0], sides[1], consequence)


def _setting(name: str) -> Callable[[Run], str]:
    def read(run: Run) -> str:
        value: Any = run.settings.get(name)
        return value if isinstance(value, str) else json.dumps(value)

    return read


def _learning_rates(run: Run) -> str:
    rates = np.unique(run["learning_rate"][np.isfinite(run["learning_rate"])])
    if not len(rates):
        return "unknown"
    return f"{rates[0]:g}" if len(rates) == 1 else f"{rates[0]:g} to {rates[-1]:g}"


def _data_hash(run: Run) -> str:
    """Return the start of the hashes of the samples, under whatever name the run keeps them."""
    hashes = [
        str(value)[:12]
        for name, value in sorted(run.attributes.items())
        if name.endswith(("hash", "sha256")) and name.startswith(("data", "sample", "batch"))
    ]
    return " ".join(hashes) or "unknown"
