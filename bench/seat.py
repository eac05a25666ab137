"""The driver's side of a contender that runs in an interpreter of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from bench.contestant import Entry

ROOT = Path(__file__).resolve().parents[1]


class Missing(Exception):  # noqa: N818 - it is a finding
    """Why a contender cannot take part."""


class Seat:
    """A contender: call it for the seconds that its line took this time.

    Args:
        entry: what it runs.
        python: the interpreter; None for this one.

    Attributes:
        remark: what it says of itself: the strategy of the engine.

    Raises:
        Missing: If what it needs is not installed there.
    """

    def __init__(self, entry: Entry, python: str | None = None) -> None:
        command = [python or sys.executable, "-m", "bench.contestant", json.dumps(asdict(entry))]
        try:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise Missing(str(error)) from error
        answer = self._read()
        if "missing" in answer:
            self.close()
            raise Missing(answer["missing"])
        self.remark = str(answer["remark"])

    def _read(self) -> dict[str, object]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Missing(f"its process ended with {self._process.wait()}")
        return dict(json.loads(line))

    def __call__(self) -> float:
        """Return the seconds that the line took."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return float(str(self._read()["seconds"]))

    def __enter__(self) -> Seat:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the interpreter."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=60)
