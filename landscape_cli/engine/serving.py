"""What a process does that measures for another one on the same machine."""

from __future__ import annotations

import ctypes
import os
import pickle
import queue
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from landscape_cli.engine.station import Station
    from landscape_cli.errors import LandscapeError

READY = "ready"
"""What a process says once it has imported what it needs."""
PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""
MOST_MESSAGES = 1 << 20
"""Bytes of messages that are kept of a process; what is older goes."""


def serve(driver: int, pipe: int) -> None:
    """Measure what the driver asks for, until it is gone.

    Args:
        driver: its process.
        pipe: descriptor of this end of the pipe to it.
    """
    # Ctrl-C reaches every process of a terminal. Until here it was held back.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _die_with(driver)
    os.set_inheritable(pipe, False)
    connection = Connection(pipe)
    received: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, received), daemon=True).start()
    from landscape_cli.engine.station import Station

    try:
        connection.send(READY)
        station = Station(received.get())
        while True:
            question, about = pickle.loads(received.get())  # noqa: S301  the driver's own
            connection.send(_answer(station, question, about))
            forget_messages()
    except OSError:
        os._exit(0)  # the driver is gone, and nobody is left to tell


def _answer(
    station: Station, question: str, about: tuple[Any, ...]
) -> tuple[Any, LandscapeError | None]:
    from landscape_cli.engine.worker import describe

    try:
        return getattr(station, question)(*about), None
    except Exception as error:  # noqa: BLE001  building a model may raise anything
        return None, describe(error)


def _listen(connection: Connection, received: queue.SimpleQueue[bytes]) -> None:
    """Take questions while others are answered, and notice at once when the driver is gone."""
    try:
        while True:
            received.put(connection.recv_bytes())
    except (EOFError, OSError):
        os._exit(0)


def _die_with(driver: int) -> None:
    """Let Linux end this process with its driver, should it be too busy to notice by itself."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != driver:
        os._exit(0)


def forget_messages(descriptor: int = 2) -> None:
    """Keep the file of messages small, whatever the model says at every point."""
    if os.lseek(descriptor, 0, os.SEEK_CUR) > MOST_MESSAGES:
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
