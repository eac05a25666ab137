"""A run read back from its file, and from the journal of a run that is still going on."""

from __future__ import annotations

import zlib
from pathlib import Path

from landscape_cli.errors import StoreError
from landscape_cli.journal import Journal, read
from landscape_cli.runs import Run
from landscape_cli.store.hdf5 import ForeignLayoutError
from landscape_cli.store.reading import decode
from landscape_cli.store.sealing import unseal

_OTHER = "landscape show RUN.h5, a file that landscape probe wrote"


def open_run(path: str | Path, *, include_journal: bool = True) -> Run:
    """Read a run, complete or partial.

    Nothing in the file is executed, no other file is opened on its behalf, and no size that it
    declares is believed beyond what the file can hold.

    Args:
        path: of the file that `landscape probe` wrote.
        include_journal: also show what a run that is going on, or was cut off, has finished since
            the file was last brought up to date.

    Raises:
        StoreError: If there is no such file, it is not a run, is damaged, or is too new.
    """
    path = Path(path)
    journal = Journal.path_of(path)
    if include_journal and _is_newer(journal, path):
        try:
            return _open_journal(journal, path)
        except StoreError:
            if not path.exists():
                raise
    return _open_file(path)


def _is_newer(journal: Path, path: Path) -> bool:
    try:
        written = journal.stat().st_mtime_ns
    except OSError:
        return False
    try:
        return path.stat().st_mtime_ns < written
    except OSError:
        return True


def _open_journal(journal: Path, path: Path) -> Run:
    from landscape_cli.assembly import assemble

    header, units = read(journal)
    if not units and path.exists():
        return _open_file(path)
    try:
        run = assemble(header, units)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise StoreError(
            "the journal does not describe a run",
            seen=f"{journal}: {error!r:.200}",
            hint="move it away, or go on with the version of landscape that wrote it",
        ) from error
    run.source = str(path)
    return run


def _open_file(path: Path) -> Run:
    content = _read_content(path)
    try:
        run = _decode(content, path)
    except StoreError as error:
        seen = " ".join(error.seen.split())  # on one line, whatever the names in the file are
        raise StoreError(error.what, seen=f"{path}: {seen}", hint=error.hint) from error
    except (ValueError, OverflowError, zlib.error, MemoryError) as error:
        raise StoreError(
            "the file is damaged",
            seen=f"{path}: {error!r:.200}",
            hint="restore it from a copy, or probe again",
        ) from error
    run.source = str(path)
    return run


def _read_content(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise StoreError("the run is not a file", seen=path, hint=_OTHER)
        return path.read_bytes()
    except OSError as error:
        seen = f"{path}: {error.strerror}"
        raise StoreError("the run cannot be opened", seen=seen, hint=_OTHER) from error


def _decode(content: bytes, path: Path) -> Run:
    """Return the run in a file, also where another program laid it out.

    What carries our seal was laid out by us: there, another layout is damage.
    """
    image = unseal(content)
    try:
        return decode(image)
    except ForeignLayoutError:
        if len(image) < len(content):
            raise
    from landscape_cli.store.conversion import convert

    return decode(convert(path))
