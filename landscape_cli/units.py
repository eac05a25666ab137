"""Units of work: what is measured in one go, journalled in one go and never measured twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

UnitKind = Literal["base", "line", "measure", "plane", "choice", "threads", "failure"]

RUN = -1
"""The checkpoint of a unit that concerns the whole run."""


@dataclass(frozen=True, order=True)
class UnitKey:
    """Which unit: of a checkpoint, points start ≤ k < stop of a named line, or a measure.

    Attributes:
        checkpoint: position along the checkpoint axis; −1 for what concerns the whole run.
        kind: ``base`` (loss, gradient norm, noise floor), ``line``, ``measure``, ``plane``,
            ``choice`` (strategy and chunk of the run), ``threads`` (how many, `stop`; and the
            layout) or ``failure`` (of a whole checkpoint).
        name: the direction's label, the measure's name, the strategy's name, the layout.
        start: first point.
        stop: one past the last point.
    """

    checkpoint: int
    kind: UnitKind
    name: str = ""
    start: int = 0
    stop: int = 0


@dataclass(frozen=True)
class UnitResult:
    """What was measured.

    Attributes:
        key: which unit it is.
        arrays: numbers by name; the first axis of a line's arrays is the points.
        notices: what the user should know, one line each.
        error: why nothing was measured, in the form of an error's lines; empty if it was.
    """

    key: UnitKey
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    error: str = ""
