"""Files mapped into memory, and tensors as bounded views of their bytes.

No size that a file declares is believed: every region is a slice of a mapping whose length the
operating system gave, and every view is checked against its region before it is made.
"""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from landscape_cli.checkpoints.contents import Entry
from landscape_cli.checkpoints.damage import DamagedError
from landscape_cli.errors import CheckpointError

_ALWAYS_ALLOWED_BYTES = 1 << 24
"""A view may repeat its storage (stride 0) up to this size, or that of the file."""
_LONGEST_LINE = 1 << 24


def map_file(path: Path) -> memoryview:
    """Return the bytes of a file, mapped; writes to them never reach the file."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise DamagedError("the file is empty")
        return memoryview(_private_mapping(file.fileno()))


def _private_mapping(descriptor: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    # Without NORESERVE the kernel refuses to map a file that is larger than the memory.
    flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
    return mmap.mmap(descriptor, 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)


class Window:
    """A read-only file over a region of memory; it never allocates more than it returns."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes, as many as there are."""
        left = max(0, len(self._data) - self._position)
        size = left if size is None or size < 0 else min(size, left)
        start, self._position = self._position, self._position + size
        return bytes(self._data[start : start + size])

    def readline(self) -> bytes:
        """Return the bytes up to and with the next newline.

        Raises:
            DamagedError: If the line is longer than any that a pickle needs.
        """
        parts: list[bytes] = []
        while part := self.read(4096):
            if len(parts) > _LONGEST_LINE // 4096:
                raise DamagedError("a line does not end")
            end = part.find(b"\n") + 1
            if end:
                self._position -= len(part) - end
                parts.append(part[:end])
                break
            parts.append(part)
        return b"".join(parts)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to `offset` from the start, the current position or the end."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: len(self._data)}[whence]
        if base + offset < 0:
            raise ValueError("a negative position")
        self._position = base + offset
        return self._position

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position


@dataclass(eq=False)
class Storage:
    """A run of elements in a file, shared by the tensors that view it.

    Attributes:
        dtype: type of the elements; None where only bytes are known.
        count: number of elements that the file declares.
        region: the bytes; None until the reader knows where they are.
        limit: bytes that a view may span when it repeats elements.
    """

    dtype: torch.dtype | None
    count: int
    region: memoryview | None = None
    limit: int = _ALWAYS_ALLOWED_BYTES
    _flat: dict[torch.dtype, Tensor] = field(default_factory=dict, repr=False)

    def place(self, region: memoryview) -> None:
        """Say where the bytes are.

        Raises:
            DamagedError: If there are fewer than declared.
        """
        needed = self.count * (self.dtype.itemsize if self.dtype is not None else 1)
        if needed > len(region):
            raise DamagedError(f"a storage declares {needed} bytes where {len(region)} are left")
        self.region = region[:needed]

    def flat(self, dtype: torch.dtype) -> Tensor:
        """Return all elements as one dimension; the same memory at every call."""
        if dtype not in self._flat:
            self._flat[dtype] = _elements(self._bytes(), dtype)
        return self._flat[dtype]

    def _bytes(self) -> memoryview:
        if self.region is None:
            raise DamagedError("a tensor refers to a storage that the file does not hold")
        return self.region


def _elements(region: memoryview, dtype: torch.dtype) -> Tensor:
    count = len(region) // dtype.itemsize
    if count == 0:
        return torch.empty(0, dtype=dtype)
    raw = torch.frombuffer(region, dtype=torch.uint8, count=count * dtype.itemsize)
    if raw.data_ptr() % dtype.itemsize:
        raw = raw.clone()  # the kernels may assume aligned elements
    return raw.view(dtype)


@dataclass(frozen=True, eq=False)
class StoredTensor(Entry):
    """A tensor that a pickle describes: a strided view of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    conjugate: bool = False
    negative: bool = False

    def load(self) -> Tensor:
        """Return the view.

        Raises:
            DamagedError: If it would leave its storage, or repeat it without bound.
        """
        flat = self.storage.flat(self.dtype)
        self._check(flat.numel())
        tensor = flat.as_strided(self.shape, self.stride, self.offset)
        tensor = torch._neg_view(tensor) if self.negative else tensor  # noqa: SLF001 - no copy
        return tensor.conj() if self.conjugate else tensor

    def _check(self, available: int) -> None:
        if len(self.shape) > 64:
            raise DamagedError(f"a tensor has {len(self.shape)} dimensions")
        count = math.prod(self.shape)
        last = sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True))
        if count and self.offset + last >= available:
            raise DamagedError("a tensor reaches beyond its storage")
        spans = count * self.dtype.itemsize
        if count > available and spans > self.storage.limit:
            raise DamagedError(f"a tensor claims {spans} bytes of a smaller file")
        if not count and max((*self.shape, *self.stride, self.offset)) >= 2**62:
            raise DamagedError("a tensor has impossible dimensions")


@dataclass(frozen=True, eq=False)
class RefusedTensor(Entry):
    """A tensor of a kind that a probe cannot use: sparse or quantised."""

    kind: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    def load(self) -> Tensor:
        """Refuse."""
        raise CheckpointError(
            f"the checkpoint holds a {self.kind} tensor",
            seen=f"shape {self.shape}, {self.dtype}",
            hint="save the weights as dense floating-point tensors",
        )
