"""A process that may calculate, and nothing else: on Linux, the kernel refuses all other requests.

Reference:
    Linux kernel documentation, Seccomp BPF (SECure COMPuting with filters).
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys
from dataclasses import dataclass

_SET_SECCOMP, _SET_NO_NEW_PRIVILEGES, _FILTER = 22, 38, 2
_LOAD, _EQUALS, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _ARCHITECTURE = 0, 4
"""Where these lie in what the kernel shows to a filter."""
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000


@dataclass(frozen=True)
class _Machine:
    """How a kind of machine names itself, and its numbers of the calls that remain."""

    audit: int
    calls: tuple[int, ...]


# read, write, close, fstat, lseek, mmap, mprotect, munmap, mremap, brk, madvise, futex,
# rt_sigaction, rt_sigprocmask, rt_sigreturn, sched_yield, getpid, gettid, clock_gettime,
# gettimeofday, getrandom, exit, exit_group
_MACHINES = {
    "x86_64": _Machine(
        0xC000003E,
        (0, 1, 3, 5, 8, 9, 10, 11, 25, 12, 28, 202, 13, 14, 15, 24, 39, 186, 228, 96, 318, 60, 231),
    ),
    "aarch64": _Machine(
        0xC00000B7,
        (
            *(63, 64, 57, 80, 62, 222, 226, 215, 216, 214, 233, 98, 134, 135, 139, 124, 172, 178),
            *(113, 169, 278, 93, 94),
        ),
    ),
}


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def give_up() -> bool:
    """Give up, for good, every call of the system but those for memory and for open files.

    What was refused looks to the process like a missing permission.

    Returns:
        Whether the system can do that and did.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None or not sys.platform.startswith("linux"):
        return False
    instructions = _assemble(machine)
    program = _Program(len(instructions) // 8, instructions)
    library = ctypes.CDLL(None)
    refused = library.prctl(
        _SET_NO_NEW_PRIVILEGES, *map(ctypes.c_ulong, (1, 0, 0, 0))
    ) or library.prctl(_SET_SECCOMP, ctypes.c_ulong(_FILTER), ctypes.byref(program))
    return not refused


def _assemble(machine: _Machine) -> bytes:
    """Return the filter: another architecture ends the process, a call on the list passes."""
    count = len(machine.calls)
    lines = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUALS, 1, 0, machine.audit), (_RETURN, 0, 0, _KILL)]
    lines.append((_LOAD, 0, 0, _NUMBER))
    lines += [(_EQUALS, count - at, 0, call) for at, call in enumerate(machine.calls)]
    lines += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)
