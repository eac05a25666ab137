"""How the program starts: quickly, and without what it does not need."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = ("torch", "h5py", "plotly", "numpy", "safetensors", "sklearn")


def run_python(code: str, **environment: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return finished.stdout


def loaded_after(code: str) -> list[str]:
    report = f"import sys\nprint('\\n@' + ' '.join(m for m in {HEAVY} if m in sys.modules))"
    return run_python(f"{code}\n{report}").rpartition("@")[2].split()


def calling(*args: str) -> str:
    return (
        "from landscape_cli.cli.app import app\n"
        f"try:\n    app({list(args)!r})\n"
        "except SystemExit as end:\n    assert end.code == 0, end.code"
    )


@pytest.mark.parametrize(
    "args", [["--help"], ["--version"], [], ["probe", "--help"], ["adapters", "--no-check"]]
)
def test_help_loads_nothing_heavy(args: list[str]) -> None:
    assert loaded_after(calling(*args)) == []


@pytest.mark.parametrize("module", ["landscape_cli", "landscape_cli.cli.app"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    assert loaded_after(f"import {module}") == []


@pytest.mark.parametrize("command", ["probe", "compare", "plot", "show", "inspect", "train"])
def test_the_module_of_a_command_loads_nothing_heavy(command: str) -> None:
    assert loaded_after(f"import landscape_cli.cli.{command}") == []


def test_show_compare_and_plot_do_without_torch(measured, tmp_path) -> None:
    runs = [str(measured / "a.h5"), str(measured / "b.h5")]
    report = str(tmp_path / "r.html")
    for args in (
        ["show", runs[0]],
        ["compare", *runs, "-o", report],
        ["plot", *runs, "-o", report],
    ):
        assert "torch" not in loaded_after(calling(*args))


def test_help_is_there_in_under_a_third_of_a_second() -> None:
    # Processor time, as other programs may keep the machine busy; the best of five.
    def seconds() -> float:
        before = os.times()
        subprocess.run(
            [sys.executable, "-m", "landscape_cli.cli", "--help"], capture_output=True, check=True
        )
        after = os.times()
        return (
            after.children_user
            + after.children_system
            - (before.children_user + before.children_system)
        )

    assert min(seconds() for _ in range(5)) < 0.3


def test_the_shell_can_complete_commands_and_options() -> None:
    for words, expected in (("landscape pr", "probe"), ("landscape probe --norm", "--norm-mode")):
        finished = subprocess.run(
            [sys.executable, "-m", "landscape_cli.cli"],
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "_LANDSCAPE_COMPLETE": "complete_bash",
                "COMP_WORDS": words,
                "COMP_CWORD": str(len(words.split()) - 1),
            },
        )
        assert expected in finished.stdout.split(), finished
