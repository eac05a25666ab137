"""The records of a journal: each with a mark, a length and a checksum; what is damaged ends it."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from landscape_cli.disk import disk_error
from landscape_cli.errors import StoreError
from landscape_cli.journal.encoding import decode_unit
from landscape_cli.units import UnitResult

MAGIC = b"landscape journal 1\n"
HEADER, WRITER, UNIT = b"\x89LSheader", b"\x89LSwriter", b"\x89LSunit.."
_FRAME = struct.Struct("<9sQ16s")
_MOVE_AWAY = "move it away, or --overwrite to start anew"


def frame(mark: bytes, payload: bytes) -> bytes:
    """Return a record: mark, length, checksum over both and the payload, payload."""
    return _FRAME.pack(mark, len(payload), _checksum(mark, payload)) + payload


def _checksum(mark: bytes, payload: bytes | memoryview) -> bytes:
    digest = blake2b(mark, digest_size=16)
    digest.update(len(payload).to_bytes(8, "little"))
    digest.update(payload)
    return digest.digest()


@dataclass
class Contents:
    """What is whole in a journal.

    Attributes:
        header: as recorded; None if the run was killed before it was written.
        units: in the order in which they were finished.
        writer: who opened the journal last, ``pid`` and ``host``.
        end: number of bytes up to the end of the last whole record.
        lost: units that follow a damaged record, whole themselves.
    """

    header: dict[str, Any] | None = None
    units: list[UnitResult] = field(default_factory=list)
    writer: dict[str, Any] = field(default_factory=dict)
    end: int = len(MAGIC)
    lost: int = 0


def read(path: str | Path) -> tuple[dict[str, Any], list[UnitResult]]:
    """Return the header of a journal and its finished units, while it is being written or after.

    Raises:
        StoreError: If it cannot be read, is not a journal, or has no header yet.
    """
    path = Path(path)
    contents = scan(path)
    if contents.header is None:
        raise StoreError(
            "the journal holds nothing yet",
            seen=path,
            hint="wait for the first unit; if nothing runs, probe again with --resume",
        )
    return contents.header, contents.units


def scan(path: Path) -> Contents:
    """Read a journal up to its end or the first damaged record.

    Raises:
        StoreError: If it cannot be read, or is not a journal.
    """
    try:
        if not path.is_file() and path.exists():
            raise StoreError("the journal is not a file", seen=path, hint=_MOVE_AWAY)
        content = path.read_bytes()
    except OSError as error:
        raise disk_error("the journal cannot be read", path, error) from error
    return parse(content, path)


def parse(content: bytes, path: Path) -> Contents:
    """Return what is whole in the bytes of a journal; `path` is for the error.

    Raises:
        StoreError: If they are not those of a journal.
    """
    if content[: len(MAGIC)] != MAGIC[: len(content)]:
        raise StoreError("the file is not a journal of landscape", seen=path, hint=_MOVE_AWAY)
    contents = Contents()
    view = memoryview(content)
    while (record := _record_at(view, contents.end)) is not None:
        if not _take(contents, *record):
            break
        contents.end += _FRAME.size + len(record[1])
    contents.lost = _count_whole_units(content, contents.end)
    return contents


def _record_at(view: memoryview, offset: int) -> tuple[bytes, bytes] | None:
    """Return the whole record at an offset as (mark, payload); no length is believed."""
    if offset + _FRAME.size > len(view):
        return None
    mark, length, checksum = _FRAME.unpack_from(view, offset)
    start = offset + _FRAME.size
    if mark not in (HEADER, WRITER, UNIT) or length > len(view) - start:
        return None
    payload = view[start : start + length]
    return (mark, bytes(payload)) if _checksum(mark, payload) == checksum else None


def _take(contents: Contents, mark: bytes, payload: bytes) -> bool:
    """Add a record; False if it is whole, but not what this version writes there."""
    try:
        if mark == UNIT:
            if contents.header is None:
                return False
            contents.units.append(decode_unit(payload))
        elif mark == HEADER:
            contents.header = dict(json.loads(payload))
        else:
            contents.writer = dict(json.loads(payload))
    except (ValueError, TypeError, KeyError, AttributeError, struct.error, RecursionError):
        return False
    return True


def _count_whole_units(content: bytes, offset: int) -> int:
    """Count the units after a damaged record, reading no byte more than a few times."""
    view, count, budget = memoryview(content), 0, 2 * len(content)
    while budget > 0 and (offset := content.find(UNIT, offset)) >= 0:
        record = _record_at(view, offset)
        if record is not None:
            count += 1
            offset += _FRAME.size + len(record[1])
        else:
            budget -= _declared(view, offset)
            offset += 1
    return count


def _declared(view: memoryview, offset: int) -> int:
    """Return how many bytes a failed attempt at a record may have read."""
    if offset + _FRAME.size > len(view):
        return 0
    length: int = _FRAME.unpack_from(view, offset)[1]
    return min(length, len(view) - offset)


def writer_record() -> bytes:
    """Return the record that says which process writes from here on."""
    return frame(WRITER, json.dumps({"pid": os.getpid(), "host": os.uname().nodename}).encode())
