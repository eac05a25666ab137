"""``landscape doctor``: the options of a probe, findings out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FILE = """
import torch
from torch.utils.data import TensorDataset

def model(width=6):
    return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width),
                               torch.nn.Dropout(0.5), torch.nn.Linear(width, 3))

def data():
    return TensorDataset(torch.randn(40, 4), torch.randint(0, 3, (40,)))
"""


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    import torch
    from safetensors.torch import save_file

    folder: Path = tmp_path_factory.mktemp("doctor")
    (folder / "net.py").write_text(FILE)
    scope: dict[str, object] = {}
    exec(FILE, scope)
    torch.manual_seed(0)
    save_file(scope["model"]().state_dict(), folder / "net.safetensors", {"learning_rate": "0.1"})
    spec = f"{folder / 'net.py'}"
    return [
        str(folder / "net.safetensors"),
        "--model",
        f"{spec}:model",
        "--data",
        f"{spec}:data",
        "--batch-size",
        "32",
    ]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    start = "import sys; from landscape_cli.cli.app import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_doctor_writes_one_line_per_finding(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert "determinism:  two evaluations agree bit for bit" in done.stdout
    assert "1 dropout layers draw random numbers" in done.stdout
    assert "strategy  plain" in done.stdout


def test_doctor_writes_json(arguments: list[str]) -> None:
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["healthy"] is True
    assert found["points"] == 16


def test_doctor_says_in_three_lines_what_is_wrong(arguments: list[str]) -> None:
    done = run("nothing.pt", *arguments[1:])
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
