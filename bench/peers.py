"""Other tools on the same line, for the loss alone; whoever is missing is named with the reason."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.by_hand import Batch
from bench.cases import Case

ROOT = Path(__file__).resolve().parents[1]


def loss_landscapes(case: Case, batch: Batch) -> Callable[[], object] | str:
    """Return the line of loss-landscapes, or why there is none."""
    try:
        import loss_landscapes as package
        from loss_landscapes.metrics import Loss
    except ImportError as error:
        return f"{error}: pip install loss-landscapes"
    model, metric = case.model(), Loss(case.criterion(), *batch)
    # deepcopy_model keeps the model where it is; without it the last point stays in the weights.
    return lambda: package.random_line(
        model, metric, distance=0.1, steps=case.points, normalization="model", deepcopy_model=True
    )


class Landscaper:
    """The line of landscaper in an interpreter of its own, which times itself."""

    def __init__(self, python: str, case: Case) -> None:
        command = [python, "-m", "bench.landscaper_line", case.name, str(case.points)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        ready = self._read()
        if ready != "ready":
            self._process.wait()
            raise RuntimeError(f"{python} does not run landscaper: {ready or 'see above'}")

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __call__(self) -> float:
        """Return the seconds that the line took."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return float(json.loads(self._read()))

    def close(self) -> None:
        """End the interpreter."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


def landscaper(case: Case, python: str | None) -> Landscaper | str:
    """Return the line of landscaper, or why there is none."""
    if python is None:
        return f"--landscaper PYTHON, an interpreter that has it (not {Path(sys.executable).name})"
    try:
        return Landscaper(python, case)
    except (OSError, RuntimeError) as error:
        return str(error)
