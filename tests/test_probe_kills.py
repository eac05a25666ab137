"""A probe that is killed at random instants, again and again, ends with the undisturbed numbers.

``PROBE_KILLS=100 pytest tests/test_probe_kills.py`` kills it a hundred times.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import landscape_cli as landscape
from landscape_cli.errors import LandscapeError
from landscape_cli.journal import Journal, read
from landscape_cli.units import UnitKey

KILLS = int(os.environ.get("PROBE_KILLS", "6"))
"""How many kills; each costs a start of the program."""

# The file is brought up to date all the time, so that kills fall into that as well.
PROGRAM = """
import sys
from landscape_cli import ledger
ledger.FOLD_SECONDS = 0.05
from landscape_cli.cli.app import main
main()
"""

MODEL = """
import os, time
from torch import nn

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))

    def forward(self, x):
        time.sleep(float(os.environ.get("PAUSE", "0")))
        return self.layers(x)
"""


def prepare(folder: Path) -> list[str]:
    """Write a trajectory, a model and data; return the arguments of the probe."""
    (folder / "mine.py").write_text(MODEL)
    scope: dict = {}
    exec(MODEL, scope)
    (folder / "steps").mkdir()
    for step in range(4):
        with torch.random.fork_rng():
            torch.manual_seed(step)
            state = scope["Slow"]().state_dict()
        metadata = {"training_step": str(step), "learning_rate": "0.1"}
        save_file(state, folder / "steps" / f"{step}.safetensors", metadata)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(24, 4)).astype(np.float32)
    np.savez(folder / "data.npz", x=x, y=generator.integers(0, 3, 24))
    return [
        *("probe", str(folder / "steps"), "--model", f"{folder / 'mine.py'}:Slow"),
        *("--data", f"npz:{folder / 'data.npz'}", "--steps", "0.5:4:16", "--chunk", "2"),
        *("--strategy", "plain", "--direction", "gradient", "--direction", "random:1"),
        *("--measure", "covariate_shift", "-q", "-o", str(folder / "run.h5")),
    ]


def start(arguments: list[str], *, pause: float) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, "PAUSE": str(pause), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(output: Path) -> set[UnitKey]:
    """Return the finished units in the journal; none while there is nothing in it."""
    try:
        return {unit.key for unit in read(Journal.path_of(output))[1] if not unit.error}
    except LandscapeError:
        return set()


def wait_for_units(process: subprocess.Popen, output: Path, count: int) -> None:
    """Wait until so many units are finished, or the process has ended."""
    while process.poll() is None and len(finished(output)) < count:
        try:
            process.wait(timeout=0.002)
        except subprocess.TimeoutExpired:
            continue


def kill(process: subprocess.Popen, delay: float) -> bool:
    """Kill a process after so many seconds; whether it was still running."""
    try:
        process.wait(timeout=delay)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    _, messages = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), messages
    return process.returncode != 0


def check_files(output: Path, before: set[UnitKey]) -> set[UnitKey]:
    """Every file opens, and no unit that was finished before is lost; return those finished."""
    assert before <= finished(output)
    if output.exists():
        run = landscape.open_run(output)
        alone = landscape.open_run(output, include_journal=False)
        assert not run.complete or not Journal.path_of(output).exists()
        assert np.count_nonzero(alone["status"]) <= np.count_nonzero(run["status"])
    return finished(output)


def kill_again_and_again(folder: Path, arguments: list[str], kills: int, seed: int) -> list[int]:
    """Kill a run and go on with it so many times; return how many units each kill found."""
    output, generator = folder / "run.h5", np.random.default_rng(seed)
    process, before, found = start(arguments, pause=0.004), set[UnitKey](), []
    while len(found) < kills:
        if generator.random() < 0.8:  # while it measures; otherwise while it starts
            wait_for_units(process, output, len(before) + 1)
        if not kill(process, generator.uniform(0, 0.25)):
            break
        before = check_files(output, before)
        found.append(len(before))
        process = start([*arguments, "--resume"], pause=0.004)
    _, messages = process.communicate()
    assert process.returncode == 0, messages
    return found


@pytest.mark.slow
def test_a_probe_killed_at_random_instants_ends_with_the_undisturbed_numbers(
    tmp_path: Path,
) -> None:
    arguments = prepare(tmp_path)
    output, kept, found, rounds = tmp_path / "run.h5", tmp_path / "kept.h5", [], 0
    undisturbed = start(arguments, pause=0)
    assert undisturbed.wait() == 0, undisturbed.communicate()
    undisturbed.communicate()
    output.rename(kept)
    expected = landscape.open_run(kept)
    while len(found) < KILLS:
        found += kill_again_and_again(tmp_path, arguments, min(8, KILLS - len(found)), rounds)
        rounds += 1
        run = landscape.open_run(output)
        assert run.complete
        assert not Journal.path_of(output).exists()
        assert set(run) == set(expected)
        for path in expected:
            np.testing.assert_array_equal(run[path], expected[path], err_msg=path)
        names = {entry.name for entry in tmp_path.iterdir()}
        assert names - {"__pycache__"} == {"mine.py", "steps", "data.npz", "run.h5", "kept.h5"}
        output.unlink()
    print(f"{len(found)} kills in {rounds} runs, at {sorted(found)} finished units")
    assert max(found) > min(found)
