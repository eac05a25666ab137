"""The one writer of a journal: locked against a second one, synchronised unit by unit."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from landscape_cli.disk import close_in_children, disk_error, sync_folder, try_lock, write_all
from landscape_cli.errors import StoreError
from landscape_cli.journal.encoding import encode_unit
from landscape_cli.journal.headers import check_same
from landscape_cli.journal.records import HEADER, MAGIC, UNIT, frame, scan, writer_record
from landscape_cli.units import UnitResult


class Journal:
    """An append-only file of finished units, ``RUN.h5.journal``.

    A unit is on the disk when `append` returns: one write, one fsync. While a journal is open, no
    other process can open it for writing; the lock goes with the process, however it ends.

    Attributes:
        path: of the journal.
        header: what the run was planned as, as it was first recorded.
        notices: what the user should know about the journal, one line each.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take over an open and locked file; use `create` or `resume`."""
        self.path = path
        self.header: dict[str, Any] = {}
        self.notices: list[str] = []
        self._descriptor = descriptor
        self._end = 0
        _OPEN.add(self)

    @staticmethod
    def path_of(output: str | Path) -> Path:
        """Return the path of the journal of an output file."""
        return Path(f"{output}.journal")

    @classmethod
    def create(cls, path: str | Path, header: Mapping[str, Any]) -> Journal:
        """Begin a journal.

        Args:
            path: of the journal; there must be none yet.
            header: plain values that decide the run, for JSON.

        Raises:
            StoreError: If there is a journal, another process writes it, or it cannot be created.
        """
        journal = cls(Path(path), _open_locked(Path(path), os.O_CREAT))
        try:
            journal.begin(header)
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def resume(
        cls, path: str | Path, header: Mapping[str, Any]
    ) -> tuple[Journal, list[UnitResult]]:
        """Go on with a journal: cut off what a kill left half written, return what is finished.

        Args:
            path: of the journal.
            header: that of the run that goes on; it must be the one recorded, except for what
                does not decide the numbers.

        Raises:
            StoreError: If another process writes the journal, it is not one, or its run was
                planned differently; the error names what differs.
        """
        journal = cls(Path(path), _open_locked(Path(path), 0))
        try:
            return journal, journal.go_on(header)
        except BaseException:
            journal.close()
            raise

    @classmethod
    def replace(cls, path: str | Path, header: Mapping[str, Any]) -> Journal:
        """Begin a journal in the place of one that nobody is writing.

        Raises:
            StoreError: If another process writes the journal, or the disk does not take it.
        """
        journal = cls(Path(path), _open_locked(Path(path), os.O_CREAT))
        try:
            journal.begin(header, anew=True)
        except BaseException:
            journal.close()
            raise
        return journal

    def begin(self, header: Mapping[str, Any], *, anew: bool = False) -> None:
        """Write the header into the empty file; `anew` empties it first."""
        if anew:
            self._cut(0)
        if os.fstat(self._descriptor).st_size:
            raise StoreError(
                "the output has a journal already",
                seen=self.path,
                hint="--resume goes on with what it holds, --overwrite starts anew",
            )
        text = json.dumps(header)
        self._write(MAGIC + frame(HEADER, text.encode()) + writer_record())
        self._sync_folder()
        self.header = json.loads(text)

    def go_on(self, header: Mapping[str, Any]) -> list[UnitResult]:
        """Check the recorded header, cut off what is damaged and return the units before it."""
        contents = scan(self.path)
        if contents.header is None:
            if contents.lost:
                raise StoreError(
                    "the beginning of the journal is damaged, and with it what its units belong to",
                    seen=f"{self.path}: {contents.lost} whole units",
                    hint="restore it from a copy, or --overwrite to start anew",
                )
            self.begin(header, anew=True)
            return []
        check_same(contents.header, header)
        if contents.lost:
            self.notices.append(
                f"{self.path} is damaged after byte {contents.end}: at least {contents.lost + 1} "
                "units are lost and will be measured again"
            )
        self.header, self._end = contents.header, contents.end
        self._cut(self._end)
        self._write(writer_record())
        return contents.units

    def append(self, unit: UnitResult) -> None:
        """Bring a finished unit to the disk.

        Raises:
            StoreError: If the disk does not take it; the journal is as it was before.
        """
        self._write(frame(UNIT, encode_unit(unit)))

    def _cut(self, length: int) -> None:
        try:
            os.ftruncate(self._descriptor, length)
        except OSError as error:
            raise disk_error("the journal could not be cut to length", self.path, error) from error

    def _sync_folder(self) -> None:
        try:
            sync_folder(self.path.parent)
        except OSError as error:
            raise disk_error("the journal could not be created", self.path, error) from error

    def _write(self, record: bytes) -> None:
        try:
            write_all(self._descriptor, record, self._end)
            os.fsync(self._descriptor)
        except OSError as error:
            # If even this fails, the next record is written over what is left of this one.
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._end)
            raise disk_error("the journal could not be written", self.path, error) from error
        self._end += len(record)

    def close(self, *, remove: bool = False) -> None:
        """Give up the journal and its lock; `remove` deletes it first, once the run is complete."""
        if self._descriptor < 0:
            return
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = -1


def _open_locked(path: Path, flags: int) -> int:
    """Return a descriptor of the file at the path that no other process has locked."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o666)
    except OSError as error:
        raise disk_error("the journal could not be opened", path, error) from error
    # A file system without locks answers None: there is nothing better than to go on.
    if try_lock(descriptor) is False or not _is_in_place(descriptor, path):
        os.close(descriptor)
        raise _taken(path)
    return descriptor


def _is_in_place(descriptor: int, path: Path) -> bool:
    """Whether the file that was locked still is the one at the path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _taken(path: Path) -> StoreError:
    writer: dict[str, Any] = {}
    with suppress(StoreError):
        writer = scan(path).writer
    who = f", process {writer.get('pid')} on {writer.get('host')}" if writer else ""
    return StoreError(
        "another process is writing this output",
        seen=f"{path}{who}",
        hint="wait until it has finished, or give this run another -o",
    )


_OPEN: weakref.WeakSet[Journal] = weakref.WeakSet()


def _close_all() -> None:
    for journal in list(_OPEN):
        journal.close()


close_in_children(_close_all)
