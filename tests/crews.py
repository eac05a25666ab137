"""A trajectory and its probe, for the tests of engines with several workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import cases
import numpy as np
import torch
from safetensors.torch import save_file

import landscape_cli as landscape
from landscape_cli.errors import LandscapeError
from landscape_cli.journal import Journal, read

PATIENCE = 150.0
"""Seconds that anything may take on a machine that others use."""
PROGRAM = "import sys; from landscape_cli.cli.app import main; sys.exit(main())"

MODEL = """
import os, signal, time
import torch
from torch import nn

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))

    def forward(self, x):
        time.sleep(float(os.environ.get("PAUSE", "0")))
        if self.layers[0].weight.abs().max() > float(os.environ.get("DEADLY", "inf")):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layers(x)

def make():
    torch.manual_seed(0)
    return Slow()
"""


def wait_until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.05)


@dataclass
class Place:
    """A trajectory, a model and data, as somebody on the command line has them."""

    folder: Path
    checkpoints: int = 3
    steps: str = "0.5:4:16"

    def prepare(self) -> Place:
        (self.folder / "mine.py").write_text(MODEL)
        scope: dict = {}
        exec(MODEL, scope)
        (self.folder / "steps").mkdir()
        for step in range(self.checkpoints):
            model = scope["make"]()
            with torch.no_grad():
                model.layers[0].weight.mul_(1 + step)
            metadata = {"training_step": str(step), "learning_rate": "0.1"}
            save_file(model.state_dict(), self.folder / "steps" / f"{step}.safetensors", metadata)
        x, y = (tensor.numpy() for tensor in cases.classification_data().tensors)
        np.savez(self.folder / "data.npz", x=x, y=y)
        return self

    @property
    def settings(self) -> dict:
        return {
            "model": f"{self.folder / 'mine.py'}:make",
            "data": f"npz:{self.folder / 'data.npz'}",
            "strategy": "plain",
            "steps": self.steps,
            "directions": ("gradient", "random:2"),
            "measures": ("covariate_shift",),
        }

    def arguments(self) -> list[str]:
        listed = {"directions": "direction", "measures": "measure"}
        values = [
            (listed.get(name, name), value)
            for name, given in self.settings.items()
            for value in ([given] if isinstance(given, str) else given)
        ]
        options = [f"--{name}={value}" for name, value in values]
        return ["probe", str(self.folder / "steps"), *options]


def assert_same(run: landscape.Run, other: landscape.Run) -> None:
    assert set(run) == set(other)
    for path in run:
        np.testing.assert_array_equal(run[path], other[path], err_msg=path)


def finished_units(output: Path) -> int:
    try:
        return len(read(Journal.path_of(output))[1])
    except LandscapeError:
        return 0


def children(pid: int) -> list[int]:
    """Return the processes that a process started and that are not gone."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has just ended
        if int(parent) == pid and state != "Z":
            found.append(int(entry.name))
    return found


def is_running(pid: int) -> bool:
    try:
        state = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@dataclass
class Watching:
    """Progress that keeps what it is told."""

    points: int = 0
    where: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def start(self, points: int) -> None:
        pass

    def advance(self, points: int, where: str) -> None:
        self.points += points
        self.where.append(where)

    def notice(self, text: str) -> None:
        self.notices.append(text)


@dataclass
class Stopping(Watching):
    """Progress that interrupts as soon as so many units are finished."""

    after: int = 1

    def advance(self, points: int, where: str) -> None:
        super().advance(points, where)
        if len(self.where) >= self.after:
            raise KeyboardInterrupt


def quiet_environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}
