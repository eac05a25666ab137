"""What is checked of a file before HDF5 sees it: its seal, and what HDF5 itself believes.

HDF5 loops for ever on some damaged structures and writes beyond its memory on others. Runs are
written with few kinds of structure, so that these can be checked, and all others refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from hashlib import sha256
from typing import BinaryIO, NoReturn

from landscape_cli.errors import StoreError

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
# Versions with checksums; addresses and lengths of eight bytes.
_SUPERBLOCKS = (b"\x02\x08\x08", b"\x03\x08\x08")
# The file begins at 0, and there is no extension of the superblock.
_PLACES = bytes(8) + b"\xff" * 8
_SEAL = b"\nlandscape sha256 "
_SEAL_BYTES = len(_SEAL) + 64 + 1
_BLOCK_BYTES = 1 << 22
_MARK_BYTES = 5
# Texts; lists of names; what runs are written without: indices of other kinds, older formats.
_MARKS = re.compile(
    rb"GCOL\x01|FRHP\x00|BTHD\x00|TREE[\x00\x01]|SNOD\x01|HEAP\x00|FAHD\x00|EAHD\x00"
)
_NAMES_BYTES = 142
# What is the same in all lists of names: (offset, bytes).
_NAMES = (
    (5, bytes.fromhex("070000000200100000" + "00" * 8 + "ff" * 8)),
    (78, bytes(32)),
    (110, bytes.fromhex("04000002000000000000000001000000000020000100")),
)
_INDEX_BYTES = 16
# Indices by name and by order of creation, up to a depth that holds a million names.
_INDICES = tuple(
    bytes.fromhex(f"{kind}00020000{size}{depth:02x}006428")
    for kind, size in (("05", "0b00"), ("06", "0f00"))
    for depth in range(4)
)
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
    _check_superblock(stream.read(len(_SIGNATURE) + 4 + len(_PLACES)))
    size = stream.seek(0, 2)
    _check_seal(stream, size)
    end = 0
    for mark, offset in list(_find_marks(stream, size)):
        if mark == b"GCOL":
            if offset < end:
                _refuse("the file keeps texts like no run", f"heaps overlap at byte {offset}")
            end = offset + _check_heap(stream, offset, size)
        else:
            _check_structure(stream, mark, offset)
    stream.seek(0)


def _check_superblock(start: bytes) -> None:
    if start[: len(_SIGNATURE)] != _SIGNATURE:
        _refuse("the file is not HDF5, or its beginning is damaged", f"it begins {start[:8]!r}")
    superblock = start[len(_SIGNATURE) :]
    if superblock[:3] not in _SUPERBLOCKS or superblock[4:] != _PLACES:
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


def _find_marks(stream: BinaryIO, size: int) -> Iterator[tuple[bytes, int]]:
    """Yield the mark and offset of whatever HDF5 could take for a structure to be checked."""
    tail, start = b"", 0
    for block in _blocks(stream, size):
        window = tail + block
        for match in _MARKS.finditer(window):
            yield match[0][:4], start - len(tail) + match.start()
        start += len(block)
        tail = window[1 - _MARK_BYTES :]


def _check_structure(stream: BinaryIO, mark: bytes, offset: int) -> None:
    """Check that a list of names, or its index, is laid out as in every run."""
    stream.seek(offset)
    found = stream.read(_NAMES_BYTES)
    names = mark == b"FRHP" and all(found[at : at + len(same)] == same for at, same in _NAMES)
    index = mark == b"BTHD" and found[_MARK_BYTES:_INDEX_BYTES] in _INDICES
    if not names and not index:
        _refuse("the file is laid out like no run", f"{mark.decode()} at byte {offset}")


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
