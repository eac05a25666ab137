"""Groups and arrays: headers made of messages, from the superblock downwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from landscape_cli.store.hdf5.data import read_data, read_filters
from landscape_cli.store.hdf5.heap import Heap
from landscape_cli.store.hdf5.links import Link, read_link, read_many
from landscape_cli.store.hdf5.source import UNDEFINED, Cursor, Source, refuse, refuse_layout
from landscape_cli.store.hdf5.types import Type, read_shape, read_type

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_SHAPE, _LINK_INFO, _TYPE, _EXTERNAL, _LINK, _LAYOUT = 0x1, 0x2, 0x3, 0x7, 0x6, 0x8
_FILTERS, _ATTRIBUTE, _CONTINUATION, _ATTRIBUTE_INFO = 0xB, 0xC, 0x10, 0x15
_SHARED = 2
_MAX_DEPTH = 4

Messages = dict[int, list[bytes]]


@dataclass
class Dataset:
    """One array of the file.

    Attributes:
        address: of its header, which references name it by.
        values: numbers in the byte order of this machine, or an object array of str.
        attributes: those that are one text or number.
        scales: addresses of the scales attached to its axes; None if it has no such list.
    """

    address: int
    values: np.ndarray
    attributes: dict[str, Any] = field(default_factory=dict)
    scales: list[int] | None = None


def read_tree(source: Source) -> tuple[dict[str, Any], dict[str, Dataset]]:
    """Return the attributes of the root and every array of the file by its path.

    Raises:
        StoreError: If the file is not HDF5, is damaged, or holds what no run holds.
    """
    reader = _Reader(source)
    root = reader.read_messages(_find_root(source))
    return reader.read_attributes(root)[0], dict(reader.read_group(root, "", 0))


def _find_root(source: Source) -> int:
    start = source.content[: len(_SIGNATURE)]
    if start != _SIGNATURE:
        refuse("the file is not HDF5, or its beginning is damaged", f"it begins {start!r}")
    cursor = Cursor(source.take(0, 44), len(_SIGNATURE))
    version, offsets, lengths, _, base, extension, _, root = cursor.unpack("BBBBQQQQ")
    usual = (offsets, lengths, base, extension) == (8, 8, 0, UNDEFINED)
    if version not in (2, 3) or not usual:
        refuse_layout(
            "the file is HDF5, but not as runs are written", f"superblock version {version}"
        )
    return int(root)


class _Reader:
    """Reads headers, each at most once."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.heap = Heap(source)
        self.seen: set[int] = set()

    def read_messages(self, address: int) -> Messages:
        """Return the messages of an object's header by type."""
        if address in self.seen:
            refuse("the groups of the file are nested like no run's", f"byte {address} twice")
        self.seen.add(address)
        self.source.expect(b"OHDR\x02", address)
        flags = self.source.take(address + 5, 1)[0]
        start = address + 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)
        width = 1 << (flags & 3)
        size = int.from_bytes(self.source.take(start, width), "little")
        chunks, messages = [(start + width, size)], defaultdict(list)
        for place, length in chunks:  # grows while it is read
            self.source.spend(length)
            for kind, content in _split(self.source.take(place, length), flags):
                messages[kind].append(content)
                if kind == _CONTINUATION:
                    chunks.append(self._continuation(content))
        return messages

    def _continuation(self, content: bytes) -> tuple[int, int]:
        address, length = Cursor(content).unpack("QQ")
        self.source.expect(b"OCHK", address)
        if length < 8:
            refuse("the file is damaged: a header has no end", f"byte {address}")
        return address + 4, length - 8

    def read_group(
        self, messages: Messages, prefix: str, depth: int
    ) -> Iterator[tuple[str, Dataset]]:
        """Yield the arrays in a group and below it, in the order in which they were added."""
        if depth > _MAX_DEPTH:
            refuse("the groups of the file are nested like no run's", prefix)
        if _LINK_INFO not in messages:
            refuse_layout("the file keeps names as no run does", prefix or "(root)")
        for link in self._links(messages):
            path, below = f"{prefix}{link.name}", self.read_messages(link.address)
            if _LAYOUT in below:
                yield path, self._read_dataset(path, link.address, below)
            else:
                yield from self.read_group(below, f"{path}/", depth + 1)

    def _links(self, messages: Messages) -> list[Link]:
        links = [read_link(content) for content in messages[_LINK]]
        links += read_many(self.source, messages[_LINK_INFO][0])
        return sorted(links)

    def _read_dataset(self, path: str, address: int, messages: Messages) -> Dataset:
        if _EXTERNAL in messages:
            refuse("the file takes data from other files", path)
        if not messages[_SHAPE] or not messages[_TYPE]:
            refuse("the file is damaged: an array has no shape or type", path)
        kind, shape = read_type(messages[_TYPE][0]), read_shape(messages[_SHAPE][0])
        if kind.kind not in ("number", "string", "text"):
            refuse("a variable is neither numbers nor text", path)
        filters = read_filters(messages[_FILTERS][0]) if messages[_FILTERS] else ()
        content = read_data(self.source, messages[_LAYOUT][0], filters, shape, kind.size)
        attributes, scales = self.read_attributes(messages)
        return Dataset(address, self._values(kind, shape, content), attributes, scales)

    def _values(self, kind: Type, shape: tuple[int, ...], content: bytes) -> np.ndarray:
        """Return the elements as an array: numbers, or str."""
        if kind.dtype is not None:
            values = np.frombuffer(content, kind.dtype).reshape(shape)
            return values.astype(kind.dtype.newbyteorder("="))
        texts = np.empty(len(content) // kind.size, dtype=object)
        for index in range(len(texts)):
            texts[index] = self._text(kind, content[index * kind.size : (index + 1) * kind.size])
        return texts.reshape(shape)

    def _text(self, kind: Type, content: bytes) -> str:
        if kind.kind == "text":
            return self.heap.read(content).decode()
        return content.rstrip(b"\0").decode()

    def read_attributes(self, messages: Messages) -> tuple[dict[str, Any], list[int] | None]:
        """Return the attributes that are one text or number, and the list of scales."""
        for info in messages[_ATTRIBUTE_INFO]:
            cursor = Cursor(info)
            _, flags = cursor.unpack("BB")
            cursor.take(2 if flags & 1 else 0)
            if cursor.number(8) != UNDEFINED:
                refuse_layout("the file keeps attributes as no run does", "in an index")
        attributes: dict[str, Any] = {}
        scales = None
        for content in messages[_ATTRIBUTE]:
            name, kind, shape, data = _split_attribute(content)
            if name == "DIMENSION_LIST":
                scales = self._scales(kind, shape, data)
            elif shape == () and kind.kind in ("number", "string", "text"):
                if len(data) < kind.size:
                    refuse("the file is damaged: an attribute ends too early", name)
                value = self._values(kind, (1,), data[: kind.size])[0]
                attributes[name] = value.item() if isinstance(value, np.generic) else value
        return attributes, scales

    def _scales(self, kind: Type, shape: tuple[int, ...], data: bytes) -> list[int]:
        """Return the address of the first scale of every axis."""
        if kind.kind != "references" or len(shape) != 1 or len(data) < shape[0] * 16:
            refuse("the dimensions of a variable are not references to scales", shape)
        lists = [self.heap.read(data[start : start + 16], 8) for start in range(0, len(data), 16)]
        return [int.from_bytes(one[:8].ljust(8, b"\xff"), "little") for one in lists[: shape[0]]]


def _split(content: bytes, flags: int) -> Iterator[tuple[int, bytes]]:
    """Yield type and content of the messages in one chunk of a header."""
    cursor = Cursor(content)
    head = 6 if flags & 4 else 4
    while cursor.left >= head:
        kind, size, status = cursor.unpack("BHB")
        cursor.take(head - 4)
        body = cursor.take(size)
        if status & _SHARED:
            refuse_layout("the file shares types as no run does", f"message of type {kind}")
        yield kind, body


def _split_attribute(content: bytes) -> tuple[str, Type, tuple[int, ...], bytes]:
    """Return name, type, shape and bytes of an attribute; version 1 is what h5py may add."""
    cursor = Cursor(content)
    version, flags, *sizes = cursor.unpack("BBHHH")
    if version not in (1, 3) or flags:
        refuse_layout("the file has attributes as no run has", f"version {version}, flags {flags}")
    cursor.take(1 if version == 3 else 0)
    unit = 8 if version == 1 else 1
    name, kind, space = (cursor.take(-(-size // unit) * unit) for size in sizes)
    null = len(space) > 3 and space[0] == 2 and space[3] == 2
    shape = (-1,) if null else read_shape(space)
    return name.rstrip(b"\0").decode(), read_type(kind), shape, cursor.take(cursor.left)
