"""A run of another layout, made one of ours by a process that may hang or crash without harm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import landscape_cli
from landscape_cli.errors import StoreError
from landscape_cli.store.confinement import memory_for, seconds_for

_HINT = "restore the file from a copy, or probe again"
_CODE = (
    "import sys; sys.path[:] = sys.argv[1:]; from landscape_cli.store.foreign import main; main()"
)
_ENVIRONMENT = {
    "HDF5_PLUGIN_PRELOAD": "::",  # no plugins
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_STARTUP_SECONDS = 60
_PIECE_BYTES = 1 << 20


def command() -> list[str]:
    """Return the command that reads a file of another layout: this Python, apart from its user.

    It ignores the environment and the folder it is in, and finds packages where this process
    does.
    """
    package = str(Path(landscape_cli.__file__).resolve().parents[1])
    folders = [os.path.realpath(folder) for folder in sys.path if folder]
    return [sys.executable, "-I", "-c", _CODE, *folders, package]


def convert(path: Path) -> bytes:
    """Return the bytes of a file in our layout that holds the run which another one holds.

    The HDF5 library reads the file in a process of its own, bounded in time and memory, which
    hands over nothing but those bytes; they are to be trusted as little as the file.

    Args:
        path: of the file.

    Raises:
        StoreError: If it holds no run, or the process fails, crashes or takes too long.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            answer = _ask(file.fileno(), size)
    except OSError as error:
        _fail("a run of another program's layout cannot be read", f"{error.strerror or error}")
    if answer[:1] != b"R":
        _repeat(answer)
    return answer[1:]


def _ask(descriptor: int, size: int) -> bytes:
    """Return what the process answers."""
    started, seconds = time.monotonic(), _STARTUP_SECONDS + 2 * seconds_for(size)
    with subprocess.Popen(  # noqa: S603 - our own program; the file is its standard input
        command(),
        stdin=descriptor,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **_ENVIRONMENT},
    ) as child:
        watch = threading.Timer(seconds, child.kill)
        watch.start()
        try:
            answer = _read_all(child, memory_for(size))
            status = child.wait()
        finally:
            watch.cancel()
            child.kill()
    late = time.monotonic() - started >= seconds
    _check_status(status, seconds if late else seconds_for(size), late=late)
    return answer


def _check_status(status: int, seconds: int, *, late: bool) -> None:
    if late or status == -signal.SIGXCPU:
        _fail("the HDF5 library comes to no end with the file", f"more than {seconds} s")
    if status < 0:
        _fail("the HDF5 library crashed on the file", signal.Signals(-status).name)
    if status:
        tried = f"{sys.executable}: exit status {status}"
        _fail("a run of another program's layout cannot be read", tried, "python -c 'import h5py'")


def _read_all(child: subprocess.Popen[bytes], most: int) -> bytes:
    answer = bytearray()
    assert child.stdout is not None
    while piece := child.stdout.read(_PIECE_BYTES):
        answer += piece
        if len(answer) > most:
            _fail("the file declares more data than it can hold", f"{len(answer)} bytes and more")
    return bytes(answer)


def _repeat(answer: bytes) -> NoReturn:
    """Raise the error that the process reports."""
    try:
        what, seen, hint = (" ".join(line.split())[:300] for line in json.loads(answer[1:]))
    except (ValueError, TypeError, AttributeError, RecursionError):
        what, seen, hint = "the HDF5 library crashed on the file", f"{answer[:60]!r}", ""
    _fail(what, seen, hint)


def _fail(what: str, seen: str, hint: str = "") -> NoReturn:
    raise StoreError(what, seen=seen, hint=hint or _HINT)
