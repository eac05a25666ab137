from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from landscape_cli import disk
from landscape_cli.errors import StoreError


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_file_is_created_and_replaced(tmp_path: Path) -> None:
    for content in (b"first", b"", b"second" * 100_000):
        disk.replace_file(tmp_path / "run.h5", content, what="the run")
        assert contents(tmp_path) == {"run.h5": content}


def test_the_path_shows_the_old_file_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch
) -> None:
    path = tmp_path / "run.h5"
    disk.replace_file(path, b"old", what="the run")
    seen: list[bytes] = []
    write = os.pwrite

    def one_byte(descriptor: int, data: memoryview, offset: int) -> int:
        seen.append(path.read_bytes())
        return write(descriptor, data[:1], offset)

    monkeypatch.setattr(os, "pwrite", one_byte)
    disk.replace_file(path, b"new!", what="the run")
    assert seen == [b"old"] * 4
    assert path.read_bytes() == b"new!"


def test_an_abandoned_temporary_file_is_removed_by_the_next_writer(tmp_path: Path) -> None:
    (tmp_path / ".run.h5.0badcafe.tmp").write_bytes(b"half a run")
    (tmp_path / ".other.h5.0badcafe.tmp").write_bytes(b"of another run")
    (tmp_path / ".run.h5.notes").write_bytes(b"of the user")
    disk.replace_file(tmp_path / "run.h5", b"", what="the run")
    assert sorted(contents(tmp_path)) == [".other.h5.0badcafe.tmp", ".run.h5.notes", "run.h5"]


def test_a_writer_at_work_keeps_its_temporary_file(tmp_path: Path) -> None:
    held = tmp_path / ".run.h5.0badcafe.tmp"
    with held.open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        disk.replace_file(tmp_path / "run.h5", b"", what="the run")
        assert held.exists()


def test_a_link_in_the_place_of_a_temporary_file_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"keep me")
    (tmp_path / ".run.h5.0badcafe.tmp").symlink_to(precious)
    disk.replace_file(tmp_path / "run.h5", b"", what="the run")
    assert precious.read_bytes() == b"keep me"


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "a folder that can be written"),
        (errno.EIO, "check the disk"),
    ],
)
def test_what_went_wrong_says_what_to_try(tmp_path: Path, number: int, hint: str) -> None:
    error = disk.disk_error("it failed", tmp_path, OSError(number, os.strerror(number)))
    assert isinstance(error, StoreError)
    assert error.seen == f"{tmp_path}: {os.strerror(number)}"
    assert hint in error.hint


def test_a_folder_that_cannot_be_synchronised_is_no_error_where_none_can(
    tmp_path: Path, monkeypatch
) -> None:
    def fail(number: int):
        def sync(descriptor: int) -> None:
            raise OSError(number, os.strerror(number))

        return sync

    monkeypatch.setattr(os, "fsync", fail(errno.EINVAL))
    disk.sync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", fail(errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        disk.sync_folder(tmp_path)


def test_a_lock_is_exclusive_and_goes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as first, path.open("wb") as second:
        assert disk.try_lock(first.fileno()) is True
        assert disk.try_lock(second.fileno()) is False
        first.close()
        assert disk.try_lock(second.fileno()) is True
