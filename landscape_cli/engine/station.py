"""A worker in a process of its own, that is told from elsewhere what to measure."""

from __future__ import annotations

import os
import pickle
import platform
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from landscape_cli.devices import describe_device
from landscape_cli.engine.choice import Choice
from landscape_cli.engine.conditions import Conditions
from landscape_cli.engine.tasks import attempt, obstacle
from landscape_cli.engine.worker import Worker, failure
from landscape_cli.errors import MeasurementError
from landscape_cli.threads import limited
from landscape_cli.units import UnitKey, UnitResult

Opener = Callable[[str], AbstractContextManager[Worker]]
"""Builds a worker on the device that is named, from what was sent along."""


@dataclass(frozen=True)
class Place:
    """Where a station works.

    Attributes:
        device: as in `--device`.
        folder: what relative paths are relative to.
        imports: where Python looks for modules, for those of objects that were sent.
        threads: how many it may compute with; 0 for as many as there are.
    """

    device: str
    folder: str
    imports: tuple[str, ...] = ()
    threads: int = 0


@dataclass(frozen=True)
class Greeting:
    """What a station says of itself once it is ready.

    Attributes:
        device: what it computes on, as runs record it.
        host: name of its machine.
        pid: its process there.
    """

    device: str
    host: str
    pid: int


@dataclass(frozen=True)
class Settled:
    """What was settled once, for all stations to keep to.

    Attributes:
        conditions: what to compute under.
        choice: strategy and chunk.
        revision: how often the choice was revised.
    """

    conditions: Conditions
    choice: Choice
    revision: int = 0


@dataclass(frozen=True)
class Outcome:
    """What came of measuring one unit.

    Attributes:
        units: the unit, and the choice of the run if it had to be revised.
        opened: whether its checkpoint could be opened; if not, the unit says why.
    """

    units: tuple[UnitResult, ...]
    opened: bool


class Station:
    """Builds a worker once and measures what it is told to; nothing of it outlives the process.

    Args:
        opener: an `Opener`, pickled by the process that drives this one.
    """

    def __init__(self, opener: bytes) -> None:
        self._opener = opener
        self._stack = ExitStack()
        self._revision = 0
        self._worker: Worker | None = None

    @property
    def worker(self) -> Worker:
        """The worker, once `open` was called."""
        assert self._worker is not None
        return self._worker

    def open(self, place: Place) -> Greeting:
        """Build model and batches. What cannot be built raises what building it raised."""
        if Path(place.folder).is_dir():
            os.chdir(place.folder)
        sys.path.extend(path for path in place.imports if path not in sys.path)
        if place.threads:
            torch.set_num_threads(place.threads)
        opener = _unpack(self._opener)
        self._opener = b""
        self._worker = self._stack.enter_context(opener(place.device))
        device = next(self.worker.equipment.model.parameters()).device
        return Greeting(describe_device(device), platform.node(), os.getpid())

    def close(self) -> None:
        """Put back what opening changed in this process."""
        self._stack.close()

    def settle(self) -> Conditions:
        """Return the conditions that suit the run here."""
        return self.worker.settle()

    def choose(self, checkpoint: int, conditions: Conditions) -> UnitResult | None:
        """Choose the strategy for the run at a checkpoint; None if that cannot be opened."""
        self.worker.keep_to(conditions)
        with limited(conditions.threads):
            if obstacle(self.worker, checkpoint) is not None:
                return None
            return self.worker.choose(checkpoint)

    def measure(self, key: UnitKey, settled: Settled) -> Outcome:
        """Measure a unit the way that was settled."""
        if torch.get_num_threads() != settled.conditions.threads:
            torch.set_num_threads(settled.conditions.threads)
        self.worker.keep_to(settled.conditions)
        steering = self.worker.steering
        if steering.choice is None or settled.revision > self._revision:
            steering.adopt(settled.choice, settled.revision)
            self._revision = settled.revision
        error = obstacle(self.worker, key.checkpoint)
        if error is not None:
            return Outcome((failure(UnitKey(key.checkpoint, "failure"), error),), opened=False)
        unit = attempt(self.worker, key)
        revised = steering.take_revision()
        if revised is None:
            return Outcome((unit,), opened=True)
        self._revision = revised.key.start
        return Outcome((unit, revised), opened=True)


def _unpack(sent: bytes) -> Opener:
    """Rebuild what the driver of this process sent; nothing that was read from a file is in it."""
    try:
        opener: Opener = pickle.loads(sent)  # noqa: S301
    except Exception as error:
        raise MeasurementError(
            "the model or the data cannot be rebuilt in another process",
            seen=f"{type(error).__name__}: {error}",
            hint="give them as specs: FILE.py:FACTORY or ADAPTER:TARGET",
        ) from error
    return opener
