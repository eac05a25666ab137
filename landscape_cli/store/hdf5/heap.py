"""Texts and references, which lie in collections of their own and are pointed at."""

from __future__ import annotations

from landscape_cli.store.hdf5.source import UNDEFINED, Cursor, Source, refuse

_MARK = b"GCOL\x01"
_HEAD_BYTES = 16


class Heap:
    """All collections of a file, each read when something first points at it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.collections: dict[int, dict[int, bytes]] = {}

    def read(self, pointer: bytes, size: int = 1) -> bytes:
        """Return what a pointer of 16 bytes points at; its length counts elements of `size`."""
        length, address, index = Cursor(pointer).unpack("IQI")
        if length == 0 or address in (0, UNDEFINED):
            return b""
        if address not in self.collections:
            self.collections[address] = self._read_collection(address)
        found = self.collections[address].get(index, b"")
        if length * size > len(found):
            refuse("the file is damaged: a text is not where it should be", f"byte {address}")
        self.source.spend(length * size)
        return found[: length * size]

    def _read_collection(self, address: int) -> dict[int, bytes]:
        self.source.expect(_MARK, address)
        size = Cursor(self.source.take(address + 8, 8)).number(8)
        self.source.spend(size)
        cursor = Cursor(self.source.take(address, size), _HEAD_BYTES)
        objects: dict[int, bytes] = {}
        while cursor.left >= _HEAD_BYTES:
            index, _, length = cursor.unpack("HHxxxxQ")
            if index == 0:  # what is left is free
                break
            objects[index] = cursor.take(length)
            cursor.take(min(-length % 8, cursor.left))
        return objects
