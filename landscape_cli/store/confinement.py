"""Limits that a process sets itself before it looks at what it does not trust."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from pathlib import Path

from landscape_cli.store.system_calls import give_up

_SECONDS = 5
"""Of work on any file; a run of usual size takes a hundredth of it."""
_BYTES_PER_SECOND = 1 << 20
_BASE_BYTES = 512 << 20
_EXPANSION = 1100
"""Bytes of memory for a byte of the file: what deflate can make of it."""


def seconds_for(size: int) -> int:
    """Return how long reading a file of that many bytes may work."""
    return _SECONDS + size // _BYTES_PER_SECOND


def memory_for(size: int) -> int:
    """Return how much memory reading a file of that many bytes may take."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine // 2, _BASE_BYTES + _EXPANSION * size)


def confine(size: int) -> None:
    """Bound, for good, what this process can do: time, memory, no more files or processes.

    What has not been imported cannot be after this. What the system does not know is left out; the
    time and the answer are bounded from outside as well.

    Args:
        size: bytes of the file that will be read.
    """
    worked = int(time.process_time()) + 1
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CPU: worked + seconds_for(size),
        resource.RLIMIT_AS: _address_space() + memory_for(size),
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: 3,  # those that are open: standard input, output and error
    }
    for limit, most in limits.items():
        with suppress(ValueError, OSError):
            _lower(limit, most)
    give_up()


def _lower(limit: int, most: int) -> None:
    """Set a limit, unless a lower one is in force; at the soft one the signal has a name."""
    hard = resource.getrlimit(limit)[1]
    highest = most + 1 if limit == resource.RLIMIT_CPU else most
    if hard != resource.RLIM_INFINITY:
        highest = min(highest, hard)
    resource.setrlimit(limit, (min(most, highest), highest))


def _address_space() -> int:
    """Return how many bytes of addresses are in use, on Linux; elsewhere leave room for some."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[0]
    except OSError:
        return 4 << 30
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
