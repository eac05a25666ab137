"""The plain strategy: one point at a time, in place. It serves every model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from landscape_cli.engine.chunks import loss_columns
from landscape_cli.engine.strategy import COLUMNS, Slice, coordinates
from landscape_cli.objective import STREAMED, Tap
from landscape_cli.site import Site
from landscape_cli.sums import PointSums


class Plain:
    """Move the model's own tensors, evaluate, reduce; read the results once at the end."""

    name: ClassVar[str] = "plain"
    summary: ClassVar[str] = "one point at a time, in place"

    def refusal(self, site: Site, slice_: Slice) -> str:  # noqa: ARG002 - serves everything
        """Refuse nothing."""
        return ""

    def promises(self, site: Site, seconds: float, points: int) -> bool:  # noqa: ARG002
        """Promise nothing: it is what the others are compared with."""
        return False

    def chunks(self, site: Site, most: int) -> tuple[int, ...]:  # noqa: ARG002
        """Evaluate one point at a time."""
        return (1,)

    def prepare(self, site: Site, slice_: Slice, *, chunk: int = 1) -> PlainSweep:  # noqa: ARG002
        """Make a slice ready; nothing needs to be made."""
        return PlainSweep(site, slice_)


class PlainSweep:
    """A slice that is walked point by point."""

    def __init__(self, site: Site, slice_: Slice) -> None:
        self._site = site
        self._slice = slice_
        taps = [observer.tap for observer in slice_.observers.values() if observer.tap is not None]
        self._tap = Taps(taps) if taps else None
        self._sums = PointSums(site.parameters, site.gradient)

    def evaluate(
        self, step_sizes: Sequence[float] | np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Evaluate the points one after the other."""
        rows: list[Tensor] = []
        kept: dict[str, list[np.ndarray]] = {}
        try:
            for point in coordinates(step_sizes, self._slice).tolist():
                row, gradient = self.row_at(point)
                rows.append(row)
                for name, observer in self._slice.observers.items():
                    for field, value in observer.observe(gradient).items():
                        kept.setdefault(f"{name}/{field}", []).append(value)
                del gradient  # before that of the next point takes its memory
        finally:
            self._site.parameters.restore()
        columns = torch.stack(rows).cpu().numpy() if rows else np.empty((0, len(COLUMNS)))
        return columns, {path: np.stack(values) for path, values in kept.items()}

    def row_at(self, point: Sequence[float]) -> tuple[Tensor, Sequence[Tensor]]:
        """Move to a point; return its columns, shape (5,), and the gradient if it is whole.

        The model stays there.
        """
        self._site.parameters.move_along(self._slice.directions, point)
        objective = self._site.objective
        gradient: Sequence[Tensor] = ()
        if not self._slice.gradients:
            return loss_columns(objective.value().reshape(1))[0], gradient
        distance = self._sums.of_distance()
        if self._streams:
            loss, sums = self._stream()
        else:
            loss, gradient = objective.value_and_gradient(self._tap)
            sums = self._sums.of_gradient(gradient)
        return torch.cat([loss.reshape(1), sums, distance.reshape(1)]), gradient

    @property
    def _streams(self) -> bool:
        """Whether gradients are reduced as they come, so that θ has one copy less in memory."""
        return self._site.parameters.count >= STREAMED and not self._slice.observers

    def _stream(self) -> tuple[Tensor, Tensor]:
        reference = self._site.gradient
        sums = torch.zeros(3, dtype=torch.float64, device=self._site.parameters.device)

        def reduce(position: int, gradient: Tensor | None) -> None:
            part = torch.zeros_like(reference[position]) if gradient is None else gradient
            sums.add_(self._sums.of_tensor(position, part).to(sums.device))

        return self._site.objective.value_and_reduction(reduce), sums


class Taps:
    """Several taps as one."""

    def __init__(self, taps: Sequence[Tap]) -> None:
        self._taps = tuple(taps)
        self._counts: list[int] = []

    @contextmanager
    def listen(self, batch: int) -> Iterator[None]:
        """Let every tap listen to the batch's forward pass."""
        with ExitStack() as stack:
            for tap in self._taps:
                stack.enter_context(tap.listen(batch))
            yield

    def tensors(self) -> list[Tensor]:
        """Return the tensors of all taps, one tap after the other."""
        wanted = [list(tap.tensors()) for tap in self._taps]
        self._counts = [len(tensors) for tensors in wanted]
        return [tensor for tensors in wanted for tensor in tensors]

    def receive(self, gradients: Sequence[Tensor | None]) -> None:
        """Give every tap its own gradients."""
        remaining = iter(gradients)
        for tap, count in zip(self._taps, self._counts, strict=True):
            tap.receive(list(islice(remaining, count)))
