"""The names in a group: a few lie in its header, many in a heap of names with an index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from landscape_cli.store.hdf5.source import UNDEFINED, Cursor, Source, refuse, refuse_layout

_HARD = 0
_BY_NAME = 5
_NODE_HEAD_BYTES, _NODE_TAIL_BYTES = 6, 4
_ID_BYTES = 7
_MAX_DEPTH = 4


@dataclass(frozen=True, order=True)
class Link:
    """One name in a group; sorts by when it was added."""

    order: int
    name: str
    address: int


def read_link(content: bytes) -> Link:
    """Return the link that a link message describes.

    Raises:
        StoreError: If it leads elsewhere: to another file, or to a path.
    """
    cursor = Cursor(content)
    version, flags = cursor.unpack("BB")
    kind = cursor.number(1) if flags & 8 else _HARD
    order = cursor.number(8) if flags & 4 else 0
    cursor.take(1 if flags & 16 else 0)
    name = cursor.take(cursor.number(1 << (flags & 3))).decode()
    if version != 1 or kind != _HARD:
        refuse("the file links to elsewhere", name)
    if not name or "/" in name:
        refuse("a name in the file is none", repr(name))
    return Link(order, name, cursor.number(8))


def read_many(source: Source, info: bytes) -> Iterator[Link]:
    """Yield the links that lie in the heap of names which a link info message points to."""
    cursor = Cursor(info)
    _, flags = cursor.unpack("BB")
    cursor.take(8 if flags & 1 else 0)
    heap_address, index_address = cursor.unpack("QQ")
    if heap_address == UNDEFINED:
        return
    heap = _Heap(source, heap_address)
    for identifier in _read_index(source, index_address):
        yield read_link(heap.read(identifier))


def _read_index(source: Source, address: int) -> Iterator[bytes]:
    """Yield the heap identifiers of an index by name (a B-tree, version 2)."""
    source.expect(b"BTHD\x00", address)
    cursor = Cursor(source.take(address, 34), 5)
    kind, node, record, depth, _, _, root, count, _ = cursor.unpack("BIHHBBQHQ")
    if kind != _BY_NAME or record != 4 + _ID_BYTES or depth > _MAX_DEPTH or node < 64:
        refuse_layout(
            "the names in a group are indexed as in no run", f"kind {kind}, depth {depth}"
        )
    yield from _Index(source, node, record).read(root, count, depth)


class _Index:
    """Walks the nodes of an index; sizes of counts follow from how much a node can hold."""

    def __init__(self, source: Source, node: int, record: int) -> None:
        self.source = source
        self.node = node
        self.record = record
        room = node - _NODE_HEAD_BYTES - _NODE_TAIL_BYTES
        self.most = [room // record]
        self.total = [self.most[0]]
        for depth in range(1, _MAX_DEPTH + 1):
            pointer = 8 + _width(self.most[-1]) + (_width(self.total[-1]) if depth > 1 else 0)
            self.most.append((room - pointer) // (record + pointer))
            self.total.append(self.most[-1] + (self.most[-1] + 1) * self.total[-1])

    def read(self, address: int, count: int, depth: int) -> Iterator[bytes]:
        """Yield the heap identifiers under a node."""
        self.source.expect(b"BTIN\x00" if depth else b"BTLF\x00", address)
        self.source.spend(self.node)
        cursor = Cursor(self.source.take(address, self.node), _NODE_HEAD_BYTES)
        for _ in range(count):
            yield cursor.take(self.record)[4:]
        for _ in range(count + 1 if depth else 0):
            child, children = cursor.number(8), cursor.number(_width(self.most[depth - 1]))
            cursor.take(_width(self.total[depth - 1]) if depth > 1 else 0)
            yield from self.read(child, children, depth - 1)


def _width(most: int) -> int:
    """Return how many bytes hold numbers up to that one."""
    return (most.bit_length() + 7) // 8


class _Heap:
    """A heap of names (a fractal heap): rows of blocks, from the third on twice as large."""

    def __init__(self, source: Source, address: int) -> None:
        source.expect(b"FRHP\x00", address)
        cursor = Cursor(source.take(address, 142), 5)
        identifier, filters, _ = cursor.unpack("HHB")
        cursor.position = 110
        self.columns, self.start, self.largest, bits, _, self.root, self.rows = cursor.unpack(
            "HQQHHQH"
        )
        self.source = source
        usual = (identifier, filters, bits) == (_ID_BYTES, 0, 32)
        if not usual or not 0 < self.start <= self.largest <= 1 << 20 or not 0 < self.columns <= 64:
            refuse_layout("the names in a group are kept as in no run", f"byte {address}")

    def read(self, identifier: bytes) -> bytes:
        """Return the object of a heap identifier."""
        kind, offset, length = Cursor(identifier).unpack("BIH")
        if kind != 0:
            refuse_layout("the names in a group are kept as in no run", f"object of kind {kind}")
        block, start = self._find_block(offset)
        self.source.spend(length)
        return self.source.take(block + offset - start, length)

    def _find_block(self, offset: int) -> tuple[int, int]:
        """Return the address of the block that holds an offset, and its own offset."""
        if self.rows == 0:
            return self._check_block(self.root), 0
        self.source.expect(b"FHIB\x00", self.root)
        place = start = row = 0
        while offset >= start + self.columns * self._size(row):
            start += self.columns * self._size(row)
            place += self.columns
            row += 1
        if row >= self.rows or self._size(row) > self.largest:
            refuse_layout("the names in a group are kept as in no run", f"offset {offset}")
        column = (offset - start) // self._size(row)
        pointer = self.source.take(self.root + 17 + 8 * (place + column), 8)
        return self._check_block(Cursor(pointer).number(8)), start + column * self._size(row)

    def _size(self, row: int) -> int:
        return int(self.start << max(row - 1, 0))

    def _check_block(self, address: int) -> int:
        self.source.expect(b"FHDB\x00", address)
        return address
