"""The containers of ``torch.save``: zip archives, the older stream, and bare pickles.

Each ends as a tree of plain values in which tensors are `StoredTensor` views of the mapped file.
"""

from __future__ import annotations

import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, cast

from landscape_cli.checkpoints import pickles
from landscape_cli.checkpoints.damage import DamagedError, shown
from landscape_cli.checkpoints.mapped import Storage, Window, map_file
from landscape_cli.checkpoints.pickles import Reference
from landscape_cli.checkpoints.reconstruction import rebuild, storage_dtype

_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
_PROTOCOL_VERSION = 1001
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_DEEPEST_NESTING = 2
"""A bare pickle holds each storage as a ``torch.save`` of its own."""

_MOST_VIEWS = 4
"""Times the file's size that the views of storages in the older stream may add up to."""


def read_tree(path: Path) -> Any:
    """Return the tree of values in a file that ``torch.save`` or ``pickle`` wrote.

    Raises:
        ValueError: If it is none of these, or is damaged.
    """
    return tree_of(map_file(path))


def tree_of(data: memoryview, depth: int = 0) -> Any:
    """Return the tree of values in the bytes of such a file."""
    if bytes(data[:4]) == b"PK\x03\x04":
        return _read_archive(data)
    if bytes(data[257:262]) == b"ustar":
        raise DamagedError("the tar format of the first torch releases: save it with a newer one")
    return _read_stream(data, depth)


def _limit(data: memoryview) -> int:
    return max(len(data), 1 << 24)


class _Archive:
    """A zip file whose members are stored as they are, as slices of its bytes."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        with zipfile.ZipFile(cast("IO[bytes]", Window(data))) as archive:
            self._members = {info.filename: info for info in archive.infolist()}
        stored = [m for m in self._members.values() if m.compress_type == zipfile.ZIP_STORED]
        if sum(member.file_size for member in stored) > len(data):
            raise DamagedError("the members of the archive overlap, or reach beyond the file")
        pickled = [name for name in self._members if name.rpartition("/")[2] == "data.pkl"]
        if not pickled:
            raise DamagedError("a zip archive that torch.save did not write: it has no data.pkl")
        self.prefix = min(pickled, key=len).removesuffix("data.pkl")

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self._members

    def member(self, name: str) -> memoryview:
        """Return the bytes of a member."""
        info = self._members.get(self.prefix + name)
        if info is None:
            raise DamagedError(f"the archive has no member {shown(name)}")
        if info.compress_type != zipfile.ZIP_STORED:
            raise DamagedError("the archive is compressed, which torch.save never does")
        header = self._data[info.header_offset : info.header_offset + _LOCAL_HEADER.size]
        signature, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        if signature != b"PK\x03\x04":
            raise DamagedError(f"the archive's member {shown(name)} is not where it should be")
        start = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        if start + info.file_size > len(self._data):
            raise DamagedError(f"the archive's member {shown(name)} reaches beyond the file")
        return self._data[start : start + info.file_size]


def _read_archive(data: memoryview) -> Any:
    archive = _Archive(data)
    order = bytes(archive.member("byteorder")) if "byteorder" in archive else b"little"
    if order.decode("ascii") != sys.byteorder:
        raise DamagedError(f"the numbers are {order.decode('ascii')}-endian, as on other machines")
    storages: dict[str, Storage] = {}

    def storage(identifier: Any) -> Any:
        key = str(identifier[2])
        if key not in storages:
            made = Storage(storage_dtype(identifier[1]), _count(identifier[4]), limit=_limit(data))
            made.place(archive.member(f"data/{key}"))
            storages[key] = made
        return storages[key]

    stream = Window(archive.member("data.pkl"))
    return pickles.load(stream, rebuild, _persistent(storage))


def _persistent(storage: Callable[[Any], Any]) -> pickles.Persistent:
    def resolve(identifier: Any) -> Any:
        if not isinstance(identifier, tuple) or len(identifier) < 2:
            raise DamagedError("a pickle refers to something that is not a storage")
        kind = identifier[0].decode() if isinstance(identifier[0], bytes) else identifier[0]
        if kind == "module":
            return identifier[1]
        if kind != "storage" or len(identifier) < 5 or not isinstance(identifier[2], str | int):
            raise DamagedError("a pickle refers to something that is not a storage")
        return storage(identifier)

    return resolve


def _count(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**63:
        raise DamagedError("a storage has a size that is not a whole number")
    return value


def _read_stream(data: memoryview, depth: int) -> Any:
    stream = Window(data)
    first = pickles.load(stream, _rebuild_nested(depth), _Roots(data).resolve)
    if first != _MAGIC_NUMBER:
        return first
    if pickles.load(stream, rebuild) != _PROTOCOL_VERSION:
        raise DamagedError("an unknown version of the older torch.save")
    pickles.load(stream, rebuild)  # what machine it was written on
    roots = _Roots(data)
    tree = pickles.load(stream, rebuild, roots.resolve)
    roots.place(stream, pickles.load(stream, rebuild))
    return tree


class _Roots:
    """The storages of the older stream, whose bytes come after the pickle that names them."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._roots: dict[str, Storage] = {}
        self._views: list[tuple[Storage, Storage, int]] = []
        self._viewed = 0
        self.resolve = _persistent(self._storage)

    def _storage(self, identifier: Any) -> Storage:
        _, kind, key, _, count, *rest = identifier
        dtype, limit = storage_dtype(kind), _limit(self._data)
        root = self._roots.setdefault(str(key), Storage(dtype, _count(count), limit=limit))
        if not rest or rest[0] is None:
            return root
        _, offset, size = rest[0]
        view = Storage(dtype, _count(size), limit=limit)
        self._viewed += view.count * _width(view)
        if self._viewed > _MOST_VIEWS * limit:
            raise DamagedError("the storages overlap without end")
        self._views.append((view, root, _count(offset)))
        return view

    def place(self, stream: Window, keys: Any) -> None:
        """Give every storage its bytes, which follow in the order of `keys`."""
        if not isinstance(keys, list):
            raise DamagedError("the older torch.save lists no storages")
        for key in keys:
            root = self._roots[str(key)]
            (count,) = struct.unpack("<q", stream.read(8))
            if count != root.count:
                raise DamagedError("a storage has another size than its tensors say")
            start = stream.tell()
            root.place(self._data[start:])
            stream.seek(start + count * _width(root))
        for view, root, offset in self._views:
            if root.region is not None:
                view.place(root.region[offset * _width(root) :])


def _width(storage: Storage) -> int:
    return storage.dtype.itemsize if storage.dtype is not None else 1


def _rebuild_nested(depth: int) -> pickles.Build:
    """Return `rebuild`, reading storages that a bare pickle holds as bytes."""

    def build(reference: Reference, arguments: tuple[Any, ...]) -> Any:
        holds_bytes = len(arguments) == 1 and isinstance(arguments[0], bytes)
        if str(reference) == "torch.storage._load_from_bytes" and holds_bytes:
            if depth >= _DEEPEST_NESTING:
                raise DamagedError("pickles are nested in pickles without end")
            return tree_of(memoryview(bytearray(arguments[0])), depth + 1)
        return rebuild(reference, arguments)

    return build
