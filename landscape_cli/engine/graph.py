"""The graph strategy: one point captured as a CUDA graph and replayed, without launch costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from landscape_cli.engine.chunks import loss_columns
from landscape_cli.engine.strategy import COLUMNS, Slice, coordinates
from landscape_cli.parameters import gradient_sums
from landscape_cli.site import Site

WARM_UPS = 3
"""Evaluations before the capture, in which libraries choose algorithms and take workspaces."""


class Graph:
    """Capture the evaluation of one point, with the step as a number on the device."""

    name: ClassVar[str] = "graph"
    summary: ClassVar[str] = "one point captured as a CUDA graph"

    def refusal(self, site: Site, slice_: Slice) -> str:
        """Refuse all but one GPU, and whatever has to happen on the host between two points."""
        devices = {tensor.device for tensor in site.parameters.tensors}
        if any(device.type != "cuda" for device in devices):
            return "CUDA graphs need a CUDA device"
        if len(devices) > 1:
            return "the model lies on several devices"
        if not site.objective.resident:
            return "the batches do not fit on the device, and a graph reads them from one place"
        if slice_.observers:
            return "measures watch the points one by one"
        if site.objective.draws_random:
            return "the forward pass draws random numbers"
        if site.objective.volatile_buffers:
            return "the forward pass changes buffers"
        return ""

    def promises(self, site: Site, seconds: float, points: int) -> bool:  # noqa: ARG002
        """Launches cost at every size."""
        return True

    def chunks(self, site: Site, most: int) -> tuple[int, ...]:  # noqa: ARG002
        """Evaluate one point at a time."""
        return (1,)

    def prepare(self, site: Site, slice_: Slice, *, chunk: int = 1) -> GraphSweep:  # noqa: ARG002
        """Capture the evaluation of a point.

        Raises:
            RuntimeError: If the forward or backward pass cannot be captured.
        """
        return GraphSweep(site, slice_)


class GraphSweep:
    """Replays the captured point with one step after the other."""

    def __init__(self, site: Site, slice_: Slice) -> None:
        self._site, self._slice = site, slice_
        device, dtype = site.parameters.device, site.parameters.dtype
        self._step = torch.zeros(len(slice_.directions), dtype=dtype, device=device)
        self._row = torch.zeros(len(COLUMNS), dtype=torch.float64, device=device)
        self._graph = torch.cuda.CUDAGraph()
        try:
            self._capture(device)
        finally:
            site.parameters.restore()

    def _capture(self, device: torch.device) -> None:
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.device(device), torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self._point()
        torch.cuda.current_stream(device).wait_stream(stream)
        # Torch's own stream for captures is on the GPU that the process captured on first.
        with torch.cuda.device(device), torch.cuda.graph(self._graph, stream=stream):
            self._point()

    def _point(self) -> None:
        """Evaluate the point at the static step into the static row."""
        parameters, objective = self._site.parameters, self._site.objective
        parameters.move_by(self._slice.directions, self._step)
        if not self._slice.gradients:
            self._row.copy_(loss_columns(objective.value().reshape(1))[0])
            return
        distance = parameters.squared_distance()
        loss, gradient = objective.value_and_gradient()
        sums = gradient_sums(gradient, self._site.gradient)
        self._row.copy_(torch.cat([loss.reshape(1), sums, distance.reshape(1)]))

    def evaluate(
        self, step_sizes: Sequence[float] | np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Replay the points one after the other; the host reads once, at the end."""
        points = coordinates(step_sizes, self._slice)
        steps = torch.from_numpy(points).to(self._step.device, self._step.dtype)
        rows = [self._replayed(step) for step in steps]
        self._site.parameters.restore()
        columns = torch.stack(rows).cpu().numpy() if rows else np.empty((0, len(COLUMNS)))
        return columns, {}

    def _replayed(self, step: Tensor) -> Tensor:
        self._step.copy_(step)
        self._graph.replay()
        return self._row.clone()
