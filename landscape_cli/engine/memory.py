"""How much memory there is, and keeping what was freed for the next point."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -2, -3, -4
"""Parameters of mallopt(3)."""
LARGE = 32 << 20
"""Bytes of a tensor of θ from which tensors of that size are mapped by themselves.

A piece of the heap that was freed does not quite fit another tensor of its size where something
small has settled beside it: of large tensors, a copy of θ and more is lost in that way.
"""
RECYCLING = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 64 << 20))
MAPPING = (
    (M_MMAP_MAX, 65_536),
    (M_MMAP_THRESHOLD, LARGE),
    (M_TRIM_THRESHOLD, 2**31 - 1),
    (M_TOP_PAD, 64 << 20),
)
USUAL = (
    (M_MMAP_MAX, 65_536),
    (M_MMAP_THRESHOLD, 32 << 20),
    (M_TRIM_THRESHOLD, 64 << 20),
    (M_TOP_PAD, 128 << 10),
)
"""Where glibc's thresholds come to rest by themselves in a process with large tensors."""


@contextmanager
def recycled(parameters: Iterable[Tensor] = ()) -> Iterator[None]:
    """Let freed memory stay with the process, so that every point finds its pages mapped.

    By default glibc gives large blocks back to the system, and a convolutional net then spends
    a tenth of its time on page faults. Afterwards the memory is given back. Nothing happens where
    the C library is another one.

    Args:
        parameters: of the model; if one of them is `LARGE`, tensors of that size are given back.
    """
    mallopt = _mallopt()
    if mallopt is None:
        yield
        return
    large = any(tensor.numel() * tensor.element_size() >= LARGE for tensor in parameters)
    _apply(mallopt, MAPPING if large else RECYCLING)
    try:
        yield
    finally:
        _apply(mallopt, USUAL)
        ctypes.CDLL(None).malloc_trim(0)


def _mallopt() -> ctypes._NamedFuncPointer | None:  # type: ignore[name-defined,unused-ignore]
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or not hasattr(library, "gnu_get_libc_version"):
        return None
    return library.mallopt


def _apply(mallopt: ctypes._NamedFuncPointer, settings: tuple[tuple[int, int], ...]) -> None:  # type: ignore[name-defined,unused-ignore]
    for parameter, value in settings:
        mallopt(parameter, value)


def available_bytes(device: torch.device) -> int:
    """Return the memory that is free on a device: of the GPU, or of the machine."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + held)
    return _free_machine_memory()


def _free_machine_memory() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123 - a kernel file
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux: ask the C library below
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
