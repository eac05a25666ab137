"""The hash at the end of a file, by which damage is told from what was written."""

from __future__ import annotations

from hashlib import sha256

from landscape_cli.errors import StoreError

_SEAL = b"\nlandscape sha256 "
_SEAL_BYTES = len(_SEAL) + 64 + 1


def seal(image: bytes) -> bytes:
    """Return the bytes of a file with their hash behind them, where HDF5 does not read.

    HDF5 cuts the seal off when it changes a file: an edited run opens, a damaged one does not.
    """
    return image + _seal_of(image)


def unseal(content: bytes) -> bytes:
    """Return the bytes before the seal; all of them if there is none.

    Raises:
        StoreError: If they are not those that were sealed.
    """
    if not content[-_SEAL_BYTES:].startswith(_SEAL):
        return content
    image = content[:-_SEAL_BYTES]
    if content[-_SEAL_BYTES:] != _seal_of(image):
        raise StoreError(
            "the file is damaged: it is not what was written",
            seen="its sha256 differs",
            hint="restore the file from a copy, or probe again",
        )
    return image


def _seal_of(image: bytes) -> bytes:
    return _SEAL + sha256(image).hexdigest().encode() + b"\n"
