"""The bytes of a file, given out only where they are."""

from __future__ import annotations

import struct
from typing import Any, NoReturn

from landscape_cli.errors import StoreError

UNDEFINED = 2**64 - 1
_REPAIR = "restore the file from a copy, or probe again"


class ForeignLayoutError(StoreError):
    """HDF5 that may well hold a run, laid out as landscape lays out none."""


class Source:
    """The whole content of a file, and how much of it was used for what.

    Attributes:
        content: every byte of the file.
        spent: bytes of data and text given out so far. No run gives out a byte twice, so that
            more than the file has is a sign of a file that stands for more than it holds.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.spent = 0

    def take(self, offset: int, length: int) -> bytes:
        """Return that many bytes.

        Raises:
            StoreError: If they do not lie in the file.
        """
        if not 0 <= offset <= offset + length <= len(self.content):
            refuse("the file is damaged: it refers beyond its end", f"{length} bytes at {offset}")
        return self.content[offset : offset + length]

    def spend(self, length: int) -> None:
        """Count bytes of data, text or structure that are about to be used."""
        self.spent += length
        if self.spent > 2 * len(self.content):
            refuse("the file declares more data than it can hold", f"{self.spent} bytes and more")

    def expect(self, mark: bytes, offset: int) -> None:
        """Check that a structure begins with its mark."""
        if self.take(offset, len(mark)) != mark:
            refuse_layout("the file is not laid out like a run", f"no {mark!r} at byte {offset}")


class Cursor:
    """Reads a run of bytes from the front, never beyond its end."""

    def __init__(self, content: bytes, position: int = 0) -> None:
        self.content = content
        self.position = position

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self.content) - self.position

    def take(self, length: int) -> bytes:
        """Return the next bytes.

        Raises:
            StoreError: If there are not as many.
        """
        if length > self.left:
            refuse("the file is damaged: a structure ends too early", f"{length} bytes missing")
        self.position += length
        return self.content[self.position - length : self.position]

    def number(self, size: int) -> int:
        """Return the next unsigned number of that many bytes."""
        return int.from_bytes(self.take(size), "little")

    def unpack(self, layout: str) -> tuple[Any, ...]:
        """Return the next values in the notation of `struct`, little-endian."""
        return struct.unpack(f"<{layout}", self.take(struct.calcsize(f"<{layout}")))


def refuse(what: str, seen: object) -> NoReturn:
    """Raise the error of a file that is no run."""
    raise StoreError(what, seen=seen, hint=_REPAIR)


def refuse_layout(what: str, seen: object) -> NoReturn:
    """Raise the error of a file that only another reader could read."""
    raise ForeignLayoutError(what, seen=seen, hint=_REPAIR)
