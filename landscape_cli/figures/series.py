"""What figures read off runs: the axis of training, one direction, what is not finite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from landscape_cli.figures.theme import Style, neutral, style_of
from landscape_cli.runs import MEASURED, NOT_MEASURED, Run


@dataclass(frozen=True)
class Drawn:
    """A run as figures draw it.

    Attributes:
        run: its numbers.
        label: its name, as given.
        style: its colour, dash and symbol, by its place among the runs.
        x: where its checkpoints lie along the training axis, shape (checkpoint,).
        order: its checkpoints in ascending x.
    """

    run: Run
    label: str
    style: Style
    x: np.ndarray
    order: np.ndarray

    @property
    def name(self) -> str:
        """The label as plotly may be given it."""
        return neutral(self.label)

    def along(self, path: str, direction: str) -> np.ndarray:
        """Return a variable along one direction, checkpoints in order of training."""
        index = self.run.labels("direction").index(direction)
        return np.asarray(self.run[path][self.order, index])

    def at_checkpoints(self, path: str) -> np.ndarray:
        """Return a variable, checkpoints in order of training."""
        return np.asarray(self.run[path][self.order])

    def nearest(self, place: float) -> int:
        """Return which checkpoint, in order of training, is nearest to a place in training."""
        return int(np.argmin(np.abs(self.x - place)))

    def name_at(self, place: float) -> str:
        """Return the name, with the place of the nearest checkpoint where that is another one."""
        found = self.x[self.nearest(place)]
        return self.name if found == place else f"{self.name} (at {found:.0f})"


def prepare(runs: Sequence[Run], labels: Sequence[str] | None = None) -> list[Drawn]:
    """Give every run its label, style and place on the training axis."""
    names = list(labels) if labels else [run.label for run in runs]
    known = steps_known(runs)
    drawn = []
    for index, (run, name) in enumerate(zip(runs, names, strict=True)):
        steps = np.asarray(run["training_step"], dtype=np.float64)
        places = steps if known else np.arange(len(steps), dtype=np.float64)
        order = np.argsort(places, kind="stable")
        drawn.append(Drawn(run, name, style_of(index), places[order], order))
    return drawn


def steps_known(runs: Sequence[Run]) -> bool:
    """Whether every checkpoint of every run says at which training step it was taken."""
    return all(bool((np.asarray(run["training_step"]) >= 0).all()) for run in runs)


def training_title(runs: Sequence[Run]) -> str:
    """Return the title of the training axis."""
    return "training step" if steps_known(runs) else "checkpoint, in order"


def directions_of(runs: Sequence[Run]) -> list[str]:
    """Return the directions of all runs, in order of first appearance."""
    return list(dict.fromkeys(label for run in runs for label in run.labels("direction")))


def places_of(drawn: Sequence[Drawn], most: int) -> np.ndarray:
    """Return at most so many places along the training axis, of the run with most checkpoints."""
    if not drawn:
        return np.empty(0)
    places = np.unique(max((item.x for item in drawn), key=len))
    chosen = np.linspace(0, len(places) - 1, min(len(places), most))
    return np.asarray(places[np.round(chosen).astype(int)])


def having(drawn: Sequence[Drawn], direction: str) -> list[Drawn]:
    """Return the runs that were probed along a direction."""
    return [item for item in drawn if direction in item.run.labels("direction")]


def count_not_finite(drawn: Sequence[Drawn], direction: str) -> tuple[int, int]:
    """Return how many measured points along a direction are not finite, and how many there are."""
    statuses = [item.along("status", direction) for item in having(drawn, direction)]
    measured = sum(int((status != NOT_MEASURED).sum()) for status in statuses)
    return sum(int((status > MEASURED).sum()) for status in statuses), measured


def segments(usable: np.ndarray) -> list[slice]:
    """Return the stretches of consecutive true values.

    Example:
        >>> segments(np.array([True, True, False, True]))
        [slice(0, 2, None), slice(3, 4, None)]
    """
    padded = np.concatenate([[0], np.asarray(usable, dtype=int), [0]])
    edges = np.flatnonzero(np.diff(padded))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
