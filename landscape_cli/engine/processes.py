"""Workers of a crew on this machine: a process for each, and for each a device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO

from landscape_cli.engine.crew import Answer, Call, Loss
from landscape_cli.engine.serving import READY
from landscape_cli.engine.station import Place
from landscape_cli.errors import MeasurementError

PROGRAM = (
    "import sys; driver, pipe, *sys.path = sys.argv[1:]; "
    "from landscape_cli.engine.serving import serve; serve(int(driver), int(pipe))"
)
"""What a worker runs. The script of the user is not part of it, so that it never runs twice."""
EXIT_SECONDS = 5.0
"""How long a process that has closed its pipe may take to end."""
LAST_WORDS = 4096
"""Bytes of a worker's messages that are looked at when it is lost."""


@dataclass
class _Process:
    """A worker, as the process sees it that drives it."""

    device: str
    process: subprocess.Popen[bytes]
    pipe: Connection
    messages: IO[bytes]
    asked: deque[Call] = field(default_factory=deque)

    def end(self) -> None:
        """End it, whatever it is doing, and leave nothing behind."""
        self.pipe.close()
        self.process.kill()
        self.process.wait()
        self.messages.close()

    def fate(self) -> str:
        """Return how it ended, and what it said last."""
        try:
            code = self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed its pipe"
        if code == -signal.SIGKILL:
            return "killed, as happens when memory runs out"
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        self.messages.seek(max(0, self.messages.seek(0, os.SEEK_END) - LAST_WORDS))
        lines = self.messages.read().decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return f"{how}: {said[-1][:200]}" if said else how


class Processes:
    """A `Transport` to processes of this machine, each with a pipe of its own.

    They are started anew, not forked, and import what they need; the script that is running is
    not run again. Over the pipe goes what one program says to itself: nothing that was read from a
    file is unpickled. A worker ends when its pipe closes, and so whenever this process does.

    Args:
        devices: the device of each worker.
        opener: builds a worker; pickled.
        threads: how many a worker may compute with.
    """

    def __init__(self, devices: Sequence[str], opener: bytes, *, threads: int) -> None:
        self.size = len(devices)
        self.threads = threads
        self._free = list(devices)
        self._opener = opener
        self._processes: dict[int, _Process] = {}
        self._lost = ""

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *exception: object) -> None:
        for number in list(self._processes):
            self.stop(number)

    def start(self, number: int) -> None:
        """Start a process on a device that has none."""
        here, there = Pipe()
        messages = tempfile.TemporaryFile()  # noqa: SIM115  it is open as long as the worker
        arguments = [str(os.getpid()), str(there.fileno()), *map(_absolute, sys.path)]
        try:
            with _uninterrupted():
                process = subprocess.Popen(  # noqa: S603  this very interpreter
                    [sys.executable or "", "-c", PROGRAM, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=messages,
                    pass_fds=(there.fileno(),),
                )
                device = self._free.pop(0)
                self._processes[number] = _Process(device, process, here, messages)
        except (OSError, ValueError) as error:
            here.close()
            messages.close()
            raise MeasurementError(
                "a process to measure with cannot be started",
                seen=f"{sys.executable or 'Python does not say where it is'}: {error}",
                hint="fewer --workers, or one --device",
            ) from error
        finally:
            there.close()

    def ask(self, number: int, call: Call) -> None:
        """Send a question to a process; if it is gone, that arrives instead of the answer."""
        process = self._processes[number]
        process.asked.append(call)
        with suppress(OSError):
            process.pipe.send((call.question, call.about))

    def arrivals(self) -> list[Answer | Loss]:
        """Wait a second at most, and return what has come in."""
        if not self._processes:
            return []
        wait([process.pipe for process in self._processes.values()], timeout=1.0)
        return [
            found
            for number, process in list(self._processes.items())
            for found in self._read(number, process)
        ]

    def _read(self, number: int, process: _Process) -> Iterator[Answer | Loss]:
        """Yield what a process has said, to its last word."""
        # What a process started itself may hold its end of the pipe when it is gone.
        gone = process.process.poll() is not None
        try:
            while process.pipe.poll():
                said = process.pipe.recv()
                if said == READY:
                    self._open(number, process)
                else:
                    value, error = said
                    yield Answer(number, process.asked.popleft(), value, error)
        except (EOFError, OSError):
            gone = True
        if gone:
            self._lost = process.fate()
            yield Loss(number, f"a worker on {process.device} was lost ({self._lost})", self._lost)

    def _open(self, number: int, process: _Process) -> None:
        """Send what a worker is built from, now that somebody is listening."""
        with suppress(OSError):
            process.pipe.send_bytes(self._opener)
        place = Place(process.device, str(Path.cwd()), threads=self.threads)
        self.ask(number, Call("open", (place,)))

    def stop(self, number: int) -> None:
        """End a process, and let another have its device."""
        process = self._processes.pop(number)
        process.end()
        self._free.append(process.device)

    def starved(self) -> MeasurementError:
        """Return the error of a run for which no worker could be started."""
        return MeasurementError(
            "no process to measure with could be started",
            seen=self._lost or "none answers",
            hint="fewer --workers, or one --device; --resume goes on with what was measured",
        )


def _absolute(entry: object) -> str:
    """Return an entry of the path of modules that means the same in every folder."""
    return str(Path(str(entry)).absolute())


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C, which what is started here inherits: its driver decides about both."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
