"""The parallel strategy: several points at once on a CPU, each on a copy of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from landscape_cli.engine.lanes import spread
from landscape_cli.engine.plain import PlainSweep
from landscape_cli.engine.strategy import COLUMNS, Slice, coordinates
from landscape_cli.objective import STREAMED
from landscape_cli.site import Site

WORTH_POINTS = 24
"""Points for every thread from which a trial pays, in which each evaluates three of them."""


class Parallel:
    """Evaluate as many points at once as there are processors, with one thread each."""

    name: ClassVar[str] = "parallel"
    summary: ClassVar[str] = "several points at once, with one thread and one copy of θ each"

    def refusal(self, site: Site, slice_: Slice) -> str:
        """Refuse GPUs, and whatever the copies would have to share."""
        if any(tensor.device.type != "cpu" for tensor in site.parameters.tensors):
            return "a GPU evaluates a point with all it has"
        if slice_.observers:
            return "measures watch the points one by one"
        if site.objective.draws_random:
            return "the forward pass draws random numbers"
        if site.objective.volatile_buffers:
            return "the forward pass changes buffers"
        return ""

    def promises(self, site: Site, seconds: float, points: int) -> bool:  # noqa: ARG002
        """Two processors are needed, a long enough run, and a model that may well be copied."""
        long = points >= WORTH_POINTS * site.threads
        return site.threads > 1 and long and site.parameters.count < STREAMED

    def chunks(self, site: Site, most: int) -> tuple[int, ...]:
        """Evaluate as many points together as there are threads to use."""
        return (min(site.threads, most),)

    def prepare(self, site: Site, slice_: Slice, *, chunk: int = 1) -> ParallelSweep:
        """Copy the model `chunk` times, and no more often than there are threads to use."""
        return ParallelSweep(site, slice_, max(1, min(chunk, site.threads)))


class ParallelSweep:
    """A slice of which every point is the plain one's, on whichever copy is free."""

    def __init__(self, site: Site, slice_: Slice, lanes: int) -> None:
        # Not even one lane works on the model itself: a loss or a layer that reaches for other
        # tensors than the copy's own then differs at every point, and the check finds it.
        objectives = [site.objective.replica() for _ in range(lanes)]
        self._slice = slice_
        self._sweeps = [
            PlainSweep(replace(site, objective=objective), slice_) for objective in objectives
        ]

    def evaluate(
        self, step_sizes: Sequence[float] | np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Evaluate the points, `lanes` of them at a time."""
        points = coordinates(step_sizes, self._slice).tolist()

        def evaluate(lane: int, point: list[float]) -> Tensor:
            return self._sweeps[lane].row_at(point)[0]

        rows = spread(evaluate, points, len(self._sweeps))
        columns = torch.stack(rows).numpy() if rows else np.empty((0, len(COLUMNS)))
        return columns, {}
