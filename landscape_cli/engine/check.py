"""Checked, not trusted: a point of every rewritten sweep is compared with the plain path."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from landscape_cli.engine.chunks import ChunkedSweep
from landscape_cli.engine.plain import Plain
from landscape_cli.engine.strategy import Slice, Strategy, Sweep
from landscape_cli.parameters import norm
from landscape_cli.site import Site, noise_floor

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3, torch.bfloat16: 1e-1}
"""Relative to ‖∇L‖ + ‖g‖: rounding, and the decisions of ReLU and max-pooling that it flips."""


class CheckedSweep:
    """A sweep of some strategy that gives way to the plain one where it fails or differs.

    Args:
        strategy: how the slice is evaluated as long as it proves right.
        site: where the slice starts.
        slice_: what is evaluated.
        chunk: points evaluated together.
        tell: is told, in one line, when the plain path takes over.

    Attributes:
        tell: as given; may be replaced.
        failed: whether the plain path has taken over.
    """

    def __init__(
        self,
        strategy: Strategy,
        site: Site,
        slice_: Slice,
        *,
        chunk: int,
        tell: Callable[[str], None],
    ) -> None:
        self._strategy, self._site, self._slice = strategy, site, slice_
        self._chunk, self.tell = chunk, tell
        self._sweep: Sweep | None = None
        self._checked = False
        self.failed = False

    @property
    def chunk(self) -> int:
        """Points evaluated together now, fewer than asked for where memory was short."""
        return self._sweep.chunk if isinstance(self._sweep, ChunkedSweep) else self._chunk

    def evaluate(
        self, step_sizes: Sequence[float] | np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Evaluate the points, the plain way once the strategy has failed."""
        if not self.failed:
            try:
                return self._attempt(np.asarray(step_sizes, dtype=np.float64))
            except Exception as error:  # noqa: BLE001 - whatever it was, the plain path decides
                self._site.parameters.restore()
                self._give_way(_in_one_line(error))
        return self._plain(step_sizes)

    def _attempt(self, step_sizes: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        if self._sweep is None:
            self._sweep = self._strategy.prepare(self._site, self._slice, chunk=self._chunk)
        columns, rows = self._sweep.evaluate(step_sizes)
        if not self._checked and len(step_sizes):
            index = len(step_sizes) // 2
            expected = self._plain(step_sizes[index : index + 1])[0][0]
            difference = disagreement(self._site, columns[index], expected)
            if difference:
                raise _Mismatch(difference)
            self._checked = True
        return columns, rows

    def _plain(
        self, step_sizes: Sequence[float] | np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        return Plain().prepare(self._site, self._slice).evaluate(step_sizes)

    def _give_way(self, reason: str) -> None:
        self.failed, self._sweep = True, None
        self.tell(f"the strategy {self._strategy.name} gave way to plain: {reason}")


class _Mismatch(Exception):  # noqa: N818 - it is a finding
    """What differed."""


def _in_one_line(error: Exception) -> str:
    seen = getattr(error, "seen", "") or str(error)
    text = seen.splitlines()[0] if seen else ""
    return text if isinstance(error, _Mismatch) else f"{type(error).__name__}: {text}"[:200]


def disagreement(site: Site, columns: np.ndarray, expected: np.ndarray) -> str:
    """Return in one line how a point differs from the plain path; empty if it does not.

    Losses, ‖Δg‖, ⟨∇L, g⟩ and distances are compared: relative to |L|, to ‖∇L‖ + ‖g‖ and to the
    distance, with four noise floors and the rounding of θ to spare.
    """
    if not np.array_equal(np.isfinite(columns), np.isfinite(expected)):
        return "one of the two is not finite"
    loss, *_, distance = (float(value) for value in columns)
    plain_loss, *_, plain_distance = (float(value) for value in expected)
    tolerance = TOLERANCES.get(site.parameters.dtype, 1e-3)
    if math.isfinite(loss) and abs(loss - plain_loss) > tolerance * (1e-6 + abs(plain_loss)):
        return f"the loss is {loss:.9g}, the plain path says {plain_loss:.9g}"
    if np.isfinite(columns).all() and not _same_gradients(site, columns, expected, tolerance):
        change, plain_change = math.sqrt(columns[2]), math.sqrt(expected[2])
        return f"the gradient change is {change:.6g}, the plain path says {plain_change:.6g}"
    if not _same_distance(site, math.sqrt(distance), math.sqrt(plain_distance)):
        return f"the distance is not the plain path's {math.sqrt(plain_distance):.9g}"
    return ""


def _same_gradients(
    site: Site, columns: np.ndarray, expected: np.ndarray, tolerance: float
) -> bool:
    scale = math.sqrt(expected[1]) + site.gradient_norm
    change = abs(math.sqrt(columns[2]) - math.sqrt(expected[2]))
    product = abs(columns[3] - expected[3]) / scale if scale else 0.0
    difference = max(change, product)
    # The noise floor takes gradients of its own: only where it can decide.
    return difference <= tolerance * scale or (
        difference <= tolerance * scale + 4 * noise_floor(site)
    )


def _same_distance(site: Site, distance: float, expected: float) -> bool:
    if not (math.isfinite(distance) and math.isfinite(expected)):
        return True
    rounding = torch.finfo(site.parameters.dtype).eps * norm(site.parameters.origin)
    return abs(distance - expected) <= 1e-6 * expected + rounding
