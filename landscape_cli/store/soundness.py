"""What is checked of a file before HDF5 sees it: its seal, and what would make HDF5 spin."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import sha256
from typing import BinaryIO, NoReturn

from landscape_cli.errors import StoreError

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
# Versions with checksums, and the usual eight bytes for addresses and lengths.
_SUPERBLOCKS = (b"\x02\x08\x08", b"\x03\x08\x08")
_SEAL = b"\nlandscape sha256 "
_SEAL_BYTES = len(_SEAL) + 64 + 1
_BLOCK_BYTES = 1 << 22
_HEAP_MARK = b"GCOL\x01"
_HEAP = struct.Struct("<8sQ")
_OBJECT = struct.Struct("<HHIQ")


def seal(image: bytes) -> bytes:
    """Return the bytes of a file with their hash behind them, where HDF5 does not read.

    HDF5 cuts the seal off when it changes a file: an edited run opens, a damaged one does not.
    """
    return image + _SEAL + sha256(image).hexdigest().encode() + b"\n"


def check(stream: BinaryIO) -> None:
    """Check an open file from its start to its end.

    Raises:
        StoreError: If it is not HDF5 as runs are written in, is not what was written, or would
            keep HDF5 busy for ever.
    """
    _check_superblock(stream.read(len(_SIGNATURE) + 3))
    size = stream.seek(0, 2)
    _check_seal(stream, size)
    end = 0
    for offset in list(_find_heaps(stream, size)):
        if offset < end:
            _refuse("the file keeps texts like no run", f"heaps overlap at byte {offset}")
        end = offset + _check_heap(stream, offset, size)
    stream.seek(0)


def _check_superblock(start: bytes) -> None:
    if start[: len(_SIGNATURE)] != _SIGNATURE:
        _refuse("the file is not HDF5, or its beginning is damaged", f"it begins {start[:8]!r}")
    superblock = start[len(_SIGNATURE) :]
    if superblock not in _SUPERBLOCKS:
        _refuse("the file is HDF5, but not as runs are written", f"superblock {superblock.hex()}")


def _check_seal(stream: BinaryIO, size: int) -> None:
    stream.seek(max(size - _SEAL_BYTES, 0))
    ending = stream.read()
    if not ending.startswith(_SEAL):
        return
    digest = sha256()
    for block in _blocks(stream, size - _SEAL_BYTES):
        digest.update(block)
    if ending != _SEAL + digest.hexdigest().encode() + b"\n":
        _refuse("the file is damaged: it is not what was written", "its sha256 differs")


def _blocks(stream: BinaryIO, stop: int) -> Iterator[bytes]:
    stream.seek(0)
    while stop > 0 and (block := stream.read(min(_BLOCK_BYTES, stop))):
        stop -= len(block)
        yield block


def _find_heaps(stream: BinaryIO, size: int) -> Iterator[int]:
    """Yield the offset of whatever HDF5 could take for a heap of texts and references."""
    tail, start = b"", 0
    for block in _blocks(stream, size):
        window = tail + block
        position = window.find(_HEAP_MARK)
        while position >= 0:
            yield start - len(tail) + position
            position = window.find(_HEAP_MARK, position + 1)
        start += len(block)
        tail = window[1 - len(_HEAP_MARK) :]


def _check_heap(stream: BinaryIO, offset: int, size: int) -> int:
    """Walk a heap as HDF5 does, which never ends at an object without a length; return its size."""
    stream.seek(offset)
    _, length = _HEAP.unpack(stream.read(_HEAP.size).ljust(_HEAP.size, b"\0"))
    if not _HEAP.size <= length <= size - offset:
        _refuse("the file declares more text than it can hold", f"{length} bytes at {offset}")
    objects = stream.read(length - _HEAP.size)
    position = 0
    while position + _OBJECT.size <= len(objects):
        index, _, _, content = _OBJECT.unpack_from(objects, position)
        needed = _OBJECT.size + (content + 7) // 8 * 8 if index else content
        if not 0 < needed <= len(objects) - position:
            _refuse("the texts of the file are damaged", f"byte {offset + position}")
        position += needed
    return int(length)


def _refuse(what: str, seen: str) -> NoReturn:
    raise StoreError(what, seen=seen, hint="restore the file from a copy, or probe again")
