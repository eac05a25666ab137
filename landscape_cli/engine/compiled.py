"""The compiled strategy: the plain path with the forward pass compiled by torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn

from landscape_cli.engine.plain import PlainSweep
from landscape_cli.engine.strategy import Slice
from landscape_cli.site import Site

WORTH_SECONDS = 180.0
"""Seconds on the plain path of runs in which compiling, which takes 5 to 30, may pay."""


class Compiled:
    """Compile once per model, evaluate in place. Takes seconds to start: for long runs.

    Args:
        backend: torch.compile's; others than its own are for looking into it.
    """

    name: ClassVar[str] = "compiled"
    summary: ClassVar[str] = "the forward pass compiled by torch.compile"

    def __init__(self, backend: str = "inductor") -> None:
        self._backend = backend
        self._compiled: WeakKeyDictionary[nn.Module, Callable[..., Any]] = WeakKeyDictionary()

    def refusal(self, site: Site, slice_: Slice) -> str:
        """Refuse what a compiled forward pass would not do in the same way."""
        if slice_.observers:
            return "measures watch the points one by one"
        if site.objective.norm_mode == "frozen":
            return "frozen statistics are handed over by hooks"
        if site.objective.draws_random:
            return "the forward pass draws random numbers"
        return ""

    def promises(self, site: Site, seconds: float, points: int) -> bool:  # noqa: ARG002
        """Compiling and its trial must be little beside the run."""
        return seconds * points >= WORTH_SECONDS

    def chunks(self, site: Site, most: int) -> tuple[int, ...]:  # noqa: ARG002
        """Evaluate one point at a time."""
        return (1,)

    def prepare(self, site: Site, slice_: Slice, *, chunk: int = 1) -> CompiledSweep:  # noqa: ARG002
        """Compile the model unless it has been."""
        model = site.objective.model
        if model not in self._compiled:
            self._compiled[model] = torch.compile(model, dynamic=False, backend=self._backend)
        return CompiledSweep(site, slice_, self._compiled[model])


class CompiledSweep:
    """A slice that is walked point by point with a compiled forward pass."""

    def __init__(self, site: Site, slice_: Slice, call: Callable[..., Any]) -> None:
        self._site, self._call = site, call
        self._sweep = PlainSweep(site, slice_)

    def evaluate(
        self, step_sizes: Sequence[float] | np.ndarray
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Evaluate the points one after the other."""
        with self._site.objective.calling(self._call):
            return self._sweep.evaluate(step_sizes)
