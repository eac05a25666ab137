"""The plan of a run: its axes, its settings and where they came from; the journal's header."""

from __future__ import annotations

import platform
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib import metadata
from typing import Any

import numpy as np

from landscape_cli.measures.contract import Field
from landscape_cli.planes import PlaneSpec
from landscape_cli.specs import parse_tolerance


@dataclass(frozen=True)
class PlannedCheckpoint:
    """One position along the checkpoint axis."""

    label: str
    path: str
    training_step: int
    learning_rate: float | None
    sha256: str


@dataclass(frozen=True)
class Plan:
    """Everything about a run that is decided before the first number is measured.

    Attributes:
        settings: the resolved `ProbeSpec`, as plain values.
        checkpoints: the checkpoint axis.
        directions: labels along the direction axis.
        unscaled: the labels along which step sizes are the multiples themselves.
        step_multiples: the step axis.
        measures: fields of every measure beyond the basic three, by measure and name.
        provenance: versions, device, hashes of data; must not change on a resume.
        created: when, in UTC, ISO 8601.
        command: the command line.
    """

    settings: Mapping[str, Any]
    checkpoints: tuple[PlannedCheckpoint, ...]
    directions: tuple[str, ...]
    unscaled: tuple[str, ...]
    step_multiples: tuple[float, ...]
    measures: Mapping[str, Mapping[str, Field]] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""
    command: str = ""

    def step_sizes(self, checkpoint: int, direction: str) -> np.ndarray:
        """Return a of every step, float64, shape (step,): lr × multiple, or the multiple."""
        return np.asarray(self.step_multiples) * self.step_factor(checkpoint, direction)

    def step_factor(self, checkpoint: int, direction: str) -> float:
        """Return a ÷ multiple: the learning rate, or 1 where multiples are a itself."""
        if direction in self.unscaled:
            return 1.0
        rate = self.checkpoints[checkpoint].learning_rate
        return np.nan if rate is None else rate

    @property
    def points(self) -> int:
        """How many points the run has, on lines and on planes."""
        lines = len(self.checkpoints) * len(self.directions) * len(self.step_multiples)
        return lines + (self.plane.points * len(self.plane_checkpoints) if self.plane else 0)

    @property
    def step_tolerance(self) -> float | None:
        """The tolerance to which lines are refined, None where the steps are given."""
        return parse_tolerance(self.settings.get("steps", ""))

    @cached_property
    def plane(self) -> PlaneSpec | None:
        """The plane that is asked for."""
        return PlaneSpec.of_settings(self.settings)

    @property
    def plane_checkpoints(self) -> tuple[int, ...]:
        """The checkpoints around which the plane is measured: the last for a trajectory's own."""
        every = tuple(range(len(self.checkpoints)))
        if self.plane is None:
            return ()
        return every[-1:] if self.plane.principal else every

    def plane_sizes(self, checkpoint: int) -> np.ndarray:
        """Return (a, b) of every point of the plane, row by row; float64, shape (points, 2)."""
        assert self.plane is not None
        rate = self.checkpoints[checkpoint].learning_rate
        factors = [(np.nan if rate is None else rate) if s else 1.0 for s in self.plane.scaled()]
        sizes: np.ndarray = self.plane.multiples() * np.array(factors)
        return sizes

    def to_header(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> Plan:
        """Rebuild a plan from what `to_header` returned."""
        return cls(
            settings=header["settings"],
            checkpoints=tuple(PlannedCheckpoint(**item) for item in header["checkpoints"]),
            directions=tuple(header["directions"]),
            unscaled=tuple(header["unscaled"]),
            step_multiples=tuple(header["step_multiples"]),
            measures={
                name: {key: _field(value) for key, value in fields.items()}
                for name, fields in header["measures"].items()
            },
            provenance=header["provenance"],
            created=header["created"],
            command=header["command"],
        )


def _field(values: Mapping[str, Any]) -> Field:
    return Field(**{**values, "dims": tuple(values["dims"])})


def device_kinds(text: str) -> frozenset[str]:
    """Return what numbers depend on of the devices that a run records: which, not which of them.

    Example:
        >>> sorted(device_kinds("cuda:0 NVIDIA A, cuda:1 NVIDIA A"))
        ['cuda NVIDIA A']
    """
    return frozenset(re.sub(r"^(\w+):\d+", r"\1", name) for name in text.split(", "))


def timestamp() -> str:
    """Return the present time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def command_line() -> str:
    """Return the command that this process was started with, quoted for a shell."""
    program = sys.argv[0].replace("\\", "/").rsplit("/", 1)[-1] or "python"
    return shlex.join([program, *sys.argv[1:]])


def versions() -> dict[str, str]:
    """Return the versions that numbers depend on."""
    found = {"python": platform.python_version()}
    for name in ("landscape-cli", "torch", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "unknown"
    return found
