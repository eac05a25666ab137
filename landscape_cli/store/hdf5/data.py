"""The numbers of an array: where they lie, and how they are compressed."""

from __future__ import annotations

import math
import os
import zlib
from dataclasses import dataclass

import numpy as np

from landscape_cli.store.hdf5.source import UNDEFINED, Cursor, Source, refuse, refuse_layout

_COMPACT, _CONTIGUOUS, _CHUNKED, _VIRTUAL = range(4)
_SINGLE_CHUNK = 1
_DEFLATE, _SHUFFLE, _CHECKSUM = 1, 2, 3


@dataclass(frozen=True)
class Filter:
    """One step of the way from numbers to stored bytes."""

    number: int
    values: tuple[int, ...]


def read_filters(content: bytes) -> tuple[Filter, ...]:
    """Return the filters that a filter pipeline message describes, in the order of writing."""
    cursor = Cursor(content)
    version, count = cursor.unpack("BB")
    filters = []
    for _ in range(count):
        number, _, values = cursor.unpack("HHH")
        if version != 2 or number not in (_DEFLATE, _SHUFFLE, _CHECKSUM):
            refuse_layout("the file is compressed in a way that no run is", f"filter {number}")
        filters.append(Filter(number, cursor.unpack(f"{values}I")))
    return tuple(filters)


def read_data(
    source: Source, layout: bytes, filters: tuple[Filter, ...], shape: tuple[int, ...], size: int
) -> bytes:
    """Return the bytes of an array, as many as its shape and the size of its elements make."""
    expected = math.prod(shape) * size
    if expected > _memory_bytes() // 2:
        refuse("the file declares more data than this machine can hold", f"{expected} bytes")
    stored = _read_stored(source, layout, filters, shape) if expected else b""
    source.spend(len(stored))
    for one in reversed(filters if expected else ()):
        stored = _undo(one, stored, expected)
    if len(stored) != expected:
        refuse("the file declares more data than it can hold", f"{shape}, {len(stored)} bytes")
    return stored


def _read_stored(
    source: Source, layout: bytes, filters: tuple[Filter, ...], shape: tuple[int, ...]
) -> bytes:
    cursor = Cursor(layout)
    version, kind = cursor.unpack("BB")
    if kind == _VIRTUAL:
        refuse("the file takes data from other files", "a virtual array")
    if version in (3, 4) and kind == _COMPACT:
        return cursor.take(cursor.number(2))
    if version in (3, 4) and kind == _CONTIGUOUS:
        address, length = cursor.unpack("QQ")
    elif version == 4 and kind == _CHUNKED:
        address, length = _find_chunk(cursor, filters, shape)
    else:
        refuse_layout("the file keeps data as no run does", f"layout {version}, class {kind}")
    if address == UNDEFINED:
        refuse_layout("the file declares data that was never written", shape)
    return source.take(address, length)


def _find_chunk(
    cursor: Cursor, filters: tuple[Filter, ...], shape: tuple[int, ...]
) -> tuple[int, int]:
    """Return address and length of the one chunk that is the whole array."""
    flags, axes, width = cursor.unpack("BBB")
    sides = tuple(cursor.number(width) for _ in range(axes))
    if cursor.number(1) != _SINGLE_CHUNK or sides[:-1] != shape:
        refuse_layout("the file keeps data in pieces, as no run does", f"{shape} in {sides[:-1]}")
    length, skipped = cursor.unpack("QI") if flags & 2 else (math.prod(sides), 0)
    if skipped or bool(flags & 2) != bool(filters):
        refuse_layout("the file is compressed in a way that no run is", f"flags {flags}, {skipped}")
    return cursor.number(8), length


def _undo(one: Filter, stored: bytes, expected: int) -> bytes:
    if one.number == _CHECKSUM:
        return stored[:-4]
    if one.number == _DEFLATE:
        return zlib.decompressobj().decompress(stored, expected + 4)
    width = one.values[0] if one.values else 1
    if not 0 < width <= 8 or len(stored) % width:
        refuse_layout(
            "the file is compressed in a way that no run is", f"elements of {width} bytes"
        )
    return np.frombuffer(stored, np.uint8).reshape(width, -1).T.tobytes()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
