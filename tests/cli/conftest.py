"""A small workplace: a model and data of the user's own, a trajectory, two runs of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

from landscape_cli.cli.app import app

MODEL = """
from torch import nn

def make(width=6):
    return nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Tanh(), nn.Linear(width, 3))

def crash():
    raise RuntimeError("no such weights")

def chatty():
    print("building the model")
    return make()
"""


@dataclass(frozen=True)
class Answer:
    """What a call of the program left."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.err.rstrip("\n").split("\n")

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def call(*args: object) -> Answer:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    return Answer(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def landscape() -> Callable[..., Answer]:
    """The program, in this process."""
    return call


@dataclass(frozen=True)
class Workplace:
    folder: Path

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    @property
    def specs(self) -> list[str]:
        return ["--model", f"{self / 'mine.py'}:make", "--data", f"npz:{self / 'data.npz'}"]

    @property
    def step(self) -> Path:
        return self / "trajectory" / "step-10.safetensors"

    def probe_args(self, *more: object) -> list[object]:
        return ["probe", self.step, *self.specs, "--steps", "0.5:2:3", "-q", *more]


def write_checkpoint(path: Path, seed: int, step: int) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))
    metadata = {"training_step": str(step), "learning_rate": "0.1"}
    save_file(model.state_dict(), path, metadata=metadata)


def prepare(folder: Path) -> Workplace:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(40, 4)).astype(np.float32)
    np.savez(folder / "data.npz", x=x, y=generator.integers(0, 3, 40))
    (folder / "mine.py").write_text(MODEL)
    (folder / "trajectory").mkdir()
    for step in (10, 20, 30):
        path = folder / "trajectory" / f"step-{step}.safetensors"
        write_checkpoint(path, seed=step, step=step)
    return Workplace(folder)


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    """A workplace of the test's own."""
    return prepare(tmp_path)


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A workplace with the runs a.h5 and b.h5, to be read only."""
    shared = prepare(tmp_path_factory.mktemp("measured"))
    for name, seed in (("a.h5", 0), ("b.h5", 1)):
        answer = call(
            *("probe", shared / "trajectory", *shared.specs, "--steps", "0.5:2:3"),
            *("--direction", "gradient", "--direction", "random:2"),
            *("-q", "--seed", seed, "-o", shared / name),
        )
        assert answer.code == 0, answer.err
    return shared
