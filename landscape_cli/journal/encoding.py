"""Units as bytes: a JSON head, then the raw numbers of its arrays one after the other."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import astuple
from typing import Any, get_args

import numpy as np

from landscape_cli.units import UnitKey, UnitKind, UnitResult

_LENGTH = struct.Struct("<I")
_NUMERIC_KINDS = "biuf"


def encode_unit(unit: UnitResult) -> bytes:
    """Return the bytes of a unit. Nothing is pickled: labels go into the head as JSON.

    Raises:
        TypeError: If an array holds neither numbers nor text.
    """
    arrays = {name: np.asarray(values) for name, values in unit.arrays.items()}
    head = {
        "key": astuple(unit.key),
        "arrays": {name: _describe(name, values) for name, values in arrays.items()},
        "notices": list(unit.notices),
        "error": unit.error,
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    numbers = [a.tobytes() for a in arrays.values() if a.dtype.kind in _NUMERIC_KINDS]
    return b"".join([_LENGTH.pack(len(text)), text, *numbers])


def _describe(name: str, values: np.ndarray) -> dict[str, Any]:
    if values.dtype.kind in _NUMERIC_KINDS:
        return {"dtype": values.dtype.str, "shape": values.shape}
    texts = values.ravel().tolist()
    if values.dtype.kind not in "OU" or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"the array {name!r} of a unit holds neither numbers nor text")
    return {"shape": values.shape, "labels": texts}


def decode_unit(payload: bytes) -> UnitResult:
    """Return the unit that `encode_unit` turned into these bytes.

    Raises:
        ValueError, TypeError, KeyError: If they are no such bytes; whatever sizes they declare,
            no more memory is taken than a small multiple of their length.
    """
    (length,) = _LENGTH.unpack_from(payload)
    start = _LENGTH.size + length
    head = json.loads(payload[_LENGTH.size : start])
    arrays = {}
    for name, about in head["arrays"].items():
        arrays[name], start = _decode_array(about, payload, start)
    if start != len(payload):
        raise ValueError("the arrays of a unit do not fill it")
    notices = tuple(str(notice) for notice in head["notices"])
    return UnitResult(_decode_key(*head["key"]), arrays, notices, str(head["error"]))


def _decode_array(about: dict[str, Any], payload: bytes, start: int) -> tuple[np.ndarray, int]:
    shape = tuple(int(size) for size in about["shape"])
    count = math.prod(shape)
    if "labels" in about:
        labels = np.empty(len(about["labels"]), dtype=object)
        labels[:] = [str(text) for text in about["labels"]]
        return labels.reshape(shape), start
    dtype = np.dtype(str(about["dtype"]))
    stop = start + count * dtype.itemsize
    if dtype.kind not in _NUMERIC_KINDS or min(shape, default=0) < 0 or stop > len(payload):
        raise ValueError("an array of a unit is not as large as it says")
    return np.frombuffer(payload[start:stop], dtype).reshape(shape).copy(), stop


def _decode_key(checkpoint: int, kind: str, name: str, start: int, stop: int) -> UnitKey:
    if kind not in get_args(UnitKind):
        raise ValueError(f"no unit is of the kind {kind!r:.60}")
    return UnitKey(int(checkpoint), kind, str(name), int(start), int(stop))  # type: ignore[arg-type]
