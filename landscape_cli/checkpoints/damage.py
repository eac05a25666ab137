"""How a file that cannot be read is reported, and how its names are shown."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from landscape_cli.errors import CheckpointError

_SHOWN_LENGTH = 80

DAMAGE = (
    ArithmeticError,
    AttributeError,
    DeprecationWarning,  # of pickletools at a backslash, where warnings are errors
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    SafetensorError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
)
"""What parsers raise on bytes that are not what they claim to be."""


class DamagedError(ValueError):
    """Bytes that contradict themselves; `readable` turns it into a `CheckpointError`."""


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Report whatever goes wrong while `path` is read as a `CheckpointError`."""
    try:
        yield
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(
            "the checkpoint cannot be opened",
            seen=f"{path}: {error.strerror or error}",
            hint="check the path and its permissions",
        ) from error
    except DAMAGE as error:
        raise CheckpointError(
            "the checkpoint is damaged, or is not a checkpoint",
            seen=f"{path}: {shown(str(error) or type(error).__name__, 160)}",
            hint="save or download it again; `landscape inspect` reads the formats that are known",
        ) from error


def shown(text: object, length: int = _SHOWN_LENGTH) -> str:
    """Return a name from a file as printable text of bounded length."""
    raw = str(text)
    safe = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in raw[: length + 1])
    return safe if len(safe) <= length else safe[: length - 1] + "…"


def listed(names: Sequence[object], limit: int = 4) -> str:
    """Return the first few names and how many there are."""
    first = ", ".join(shown(name) for name in names[:limit])
    return f"{first}, … ({len(names)} in all)" if len(names) > limit else first
