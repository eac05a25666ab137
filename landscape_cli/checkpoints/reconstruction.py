"""What stands for the calls in a pickle: tensors and plain values are rebuilt, the rest is inert.

The table at the end is the whole list of names that mean anything. Each entry is a function of
this file; nothing that the names belong to is imported or called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from landscape_cli.checkpoints.contents import Entry
from landscape_cli.checkpoints.damage import DamagedError
from landscape_cli.checkpoints.mapped import RefusedTensor, Storage, StoredTensor
from landscape_cli.checkpoints.pickles import Inert, Reference, key_of

_STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
    "QUInt8Storage": torch.quint8,
    "QInt8Storage": torch.qint8,
    "QInt32Storage": torch.qint32,
    "QUInt4x2Storage": torch.quint4x2,
    "QUInt2x4Storage": torch.quint2x4,
}


def storage_dtype(kind: Any) -> torch.dtype | None:
    """Return the element type of a storage class such as ``torch.FloatStorage``; None if untyped.

    Raises:
        DamagedError: If it is no storage class.
    """
    name = kind.name.rpartition(".")[2] if isinstance(kind, Reference) else ""
    if name in ("UntypedStorage", "_UntypedStorage"):
        return None
    if name not in _STORAGES:
        raise DamagedError(f"no storage is of type {kind}")
    return _STORAGES[name]


def named_dtype(reference: Any) -> torch.dtype:
    """Return the dtype that a pickle names.

    Raises:
        DamagedError: If it names no dtype.
    """
    if isinstance(reference, Reference) and reference.module == "torch":
        dtype = getattr(torch, reference.name, None) if reference.name.isidentifier() else None
        if isinstance(dtype, torch.dtype):
            return dtype
    raise DamagedError(f"no element type is named {reference}")


def rebuild(reference: Reference, arguments: tuple[Any, ...]) -> Any:
    """Return what stands for a call of `reference`: a tensor, a plain value, or an `Inert`."""
    rule = _RULES.get(str(reference))
    if rule is not None:
        return rule(*arguments)
    if reference.name in ("Parameter", "Buffer", "Variable") and _starts_with_tensor(arguments):
        return arguments[0]
    return Inert(reference, arguments)


def _starts_with_tensor(arguments: tuple[Any, ...]) -> bool:
    return bool(arguments) and isinstance(arguments[0], Entry)


def _tensor(storage: Any, offset: Any, shape: Any, stride: Any, *rest: Any) -> Entry:
    """`rest`: requires_grad, hooks, metadata."""
    return _view(storage, offset, (shape, stride), dtype=None, metadata=_third(rest))


def _typed_tensor(storage: Any, offset: Any, shape: Any, stride: Any, *rest: Any) -> Entry:
    """`rest`: requires_grad, hooks, dtype, metadata."""
    dtype = named_dtype(_third(rest))
    return _view(storage, offset, (shape, stride), dtype=dtype, metadata=_third(rest[1:]))


def _third(rest: tuple[Any, ...]) -> Any:
    return rest[2] if len(rest) > 2 else None


def _view(
    storage: Any,
    offset: Any,
    layout: tuple[Any, Any],
    *,
    dtype: torch.dtype | None,
    metadata: Any,
) -> Entry:
    if not isinstance(storage, Storage):
        raise DamagedError("a tensor has no storage")
    dtype = dtype or storage.dtype or torch.uint8
    shape, stride = _sizes(layout[0]), _sizes(layout[1])
    if len(shape) != len(stride) or not _is_size(offset):
        raise DamagedError("a tensor has no sensible shape")
    if dtype in (torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4):
        return RefusedTensor("quantised", shape, dtype)
    bits = metadata if isinstance(metadata, dict) else {}
    conjugate, negative = bool(bits.get("conj")), bool(bits.get("neg"))
    return StoredTensor(storage, offset, shape, stride, dtype, conjugate, negative)


def _sizes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple | list) or not all(map(_is_size, value)):
        raise DamagedError("a tensor has a size that is not a list of whole numbers")
    return tuple(value)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 2**63


def _parameter(data: Any, *_: Any) -> Any:
    return data


def _of_type(function: Any, _: Any, arguments: Any, *__: Any) -> Any:
    """Rebuild a subclass of Tensor as the tensor that it is."""
    if not isinstance(function, Reference) or not isinstance(arguments, tuple):
        raise DamagedError("a tensor is made by what is not a function")
    if str(function).startswith("torch._tensor._rebuild_from_type"):
        raise DamagedError("a tensor is made by making itself")
    return rebuild(function, arguments)


def _quantised(storage: Any, _: Any, shape: Any, *__: Any) -> RefusedTensor:
    dtype = storage.dtype if isinstance(storage, Storage) else None
    return RefusedTensor("quantised", _sizes(shape), dtype or torch.qint8)


def _sparse(_: Any, data: Any, *__: Any) -> RefusedTensor:
    parts = data if isinstance(data, tuple) else ()
    values = next((part for part in reversed(parts) if isinstance(part, StoredTensor)), None)
    shape = next((part for part in parts if isinstance(part, tuple)), ())
    return RefusedTensor("sparse", _sizes(shape), values.dtype if values else torch.float32)


def _mapping(*arguments: Any) -> dict[Any, Any]:
    items = arguments[-1] if arguments else ()
    if isinstance(items, dict):
        return items
    if isinstance(items, list | tuple) and all(_is_pair(item) for item in items):
        return {key_of(key): value for key, value in items}
    return {}


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2


def _same(items: Any = (), *_: Any) -> Any:
    """Let any collection stand for another kind of collection: it is only walked over."""
    return items if isinstance(items, list | tuple | set | frozenset) else []


def _encoded(text: Any = "", encoding: Any = "latin1", *_: Any) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "ascii", "utf-8"):
        raise DamagedError("bytes are encoded in an unusual way")
    return text.encode(encoding)


def _bytes(*arguments: Any) -> Any:
    """Rebuild empty bytes; other arguments would say how many to allocate."""
    return Inert(Reference("builtins", "bytes"), arguments) if arguments else b""


def _number_type(code: Any, *_: Any) -> Any:
    """Return a numpy dtype of plain numbers; anything else stays inert."""
    if isinstance(code, str) and code.lstrip("<>|=")[:1] in "biuf" and len(code) <= 4:
        return np.dtype(code)
    return Inert(Reference("numpy", "dtype"), (code,))


def _number(kind: Any, data: Any = b"", *_: Any) -> Any:
    if isinstance(kind, np.dtype) and isinstance(data, bytes) and len(data) == kind.itemsize:
        return np.frombuffer(data, kind)[0].item()
    return Inert(Reference("numpy", "scalar"), (kind, data))


_RULES: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed_tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._utils._rebuild_qtensor": _quantised,
    "torch._utils._rebuild_sparse_tensor": _sparse,
    "torch._tensor._rebuild_from_type": _of_type,
    "torch._tensor._rebuild_from_type_v2": _of_type,
    "torch.Size": _same,
    "collections.OrderedDict": _mapping,
    "collections.defaultdict": _mapping,
    "_codecs.encode": _encoded,
    "numpy.dtype": _number_type,
    "numpy.core.multiarray.scalar": _number,
    "numpy._core.multiarray.scalar": _number,
    **{f"{home}.dict": _mapping for home in ("builtins", "__builtin__")},
    **{f"{home}.bytes": _bytes for home in ("builtins", "__builtin__")},
    **{
        f"{home}.{kind}": _same
        for home in ("builtins", "__builtin__")
        for kind in ("list", "tuple", "set", "frozenset")
    },
}
