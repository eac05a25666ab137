"""Types and shapes of arrays and attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from landscape_cli.store.hdf5.source import Cursor, refuse

_FIXED, _FLOAT, _STRING, _REFERENCE, _VARIABLE = 0, 1, 3, 7, 9
_IEEE = {4: (0, 32, 23, 8, 0, 23, 127), 8: (0, 64, 52, 11, 0, 52, 1023)}
_MAX_AXES = 32

Kind = Literal["number", "string", "text", "reference", "references", "other"]


@dataclass(frozen=True)
class Type:
    """What the elements of an array are.

    Attributes:
        kind: ``number``; ``string`` of fixed length; ``text``, a pointer to a string;
            ``reference`` to an object; ``references``, a pointer to some; or ``other``.
        size: bytes per element.
        dtype: of numbers, with their byte order.
    """

    kind: Kind
    size: int
    dtype: np.dtype | None = None


def read_type(content: bytes) -> Type:
    """Return the type that a datatype message describes."""
    cursor = Cursor(content)
    head, bits, size = cursor.number(1), cursor.number(3), cursor.number(4)
    kind, order = head & 15, ">" if bits & 1 else "<"
    if kind == _FIXED and size in (1, 2, 4, 8) and cursor.unpack("HH") == (0, 8 * size):
        return Type("number", size, np.dtype(f"{order}{'i' if bits & 8 else 'u'}{size}"))
    if kind == _FLOAT and size in _IEEE and cursor.unpack("HHBBBBI") == _IEEE[size]:
        return Type("number", size, np.dtype(f"{order}f{size}"))
    if kind == _STRING and size:
        return Type("string", size)
    if kind == _REFERENCE and size == 8:
        return Type("reference", size)
    if kind == _VARIABLE and size == 16:
        if bits & 15 == 1:
            return Type("text", size)
        if read_type(content[8:]).kind == "reference":
            return Type("references", size)
    return Type("other", size)


def read_shape(content: bytes) -> tuple[int, ...]:
    """Return the shape that a dataspace message describes, () of a scalar."""
    cursor = Cursor(content)
    version, axes, _, kind = cursor.unpack("BBBB")
    if version not in (1, 2) or kind not in (0, 1) or axes > _MAX_AXES:
        refuse("a variable has no shape", f"dataspace version {version}, class {kind}")
    cursor.take(4 if version == 1 else 0)
    return cursor.unpack(f"{axes}Q")
