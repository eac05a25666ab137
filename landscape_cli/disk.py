"""Files that are whole at every instant: replace, synchronise, lock, and say what went wrong."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from landscape_cli.errors import StoreError

_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)
_HINTS = {
    errno.ENOSPC: "free some space, then --resume; what was finished is kept",
    errno.EDQUOT: "free some of the quota, then --resume; what was finished is kept",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), then --resume",
    errno.EROFS: "-o in a folder that can be written",
    errno.EACCES: "-o in a folder that you may write, or change its permissions",
    errno.EPERM: "-o in a folder that you may write, or change its permissions",
    errno.ENOENT: "create the folder first: mkdir -p",
    errno.ENOTDIR: "-o in a folder: a part of the path is a file",
    errno.EISDIR: "-o RUN.h5: the path is a folder",
    errno.ENAMETOOLONG: "-o with a shorter name",
}


def disk_error(what: str, path: Path, error: OSError) -> StoreError:
    """Return the error for a failed operation on a file: what, where and why, what to try."""
    reason = error.strerror or str(error)
    hint = _HINTS.get(error.errno or 0, "check the disk, then --resume; what was finished is kept")
    return StoreError(what, seen=f"{path}: {reason}", hint=hint)


def replace_file(path: Path, content: bytes | memoryview, *, what: str) -> None:
    """Put a file in place so that at every instant, killed or not, the path shows old or new.

    The content goes to a temporary file in the same folder, reaches the disk, and is renamed over
    the path; a symbolic link is followed. What killed writers left behind is removed.

    Args:
        path: the file to be replaced or created.
        content: all of its bytes.
        what: what the file is, for the error: "the run".

    Raises:
        StoreError: If it cannot be written; the old file is untouched, no temporary one remains.
    """
    try:
        target = Path(os.path.realpath(path))
        _remove_abandoned(target)
        _replace(target, content)
    except OSError as error:
        raise disk_error(f"{what} could not be written", path, error) from error


def _replace(target: Path, content: bytes | memoryview) -> None:
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try_lock(descriptor)
        write_all(descriptor, content, 0)
        _keep_mode(target, descriptor)
        os.fsync(descriptor)
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(descriptor)
    sync_folder(target.parent)


def _keep_mode(target: Path, descriptor: int) -> None:
    with suppress(FileNotFoundError, PermissionError):
        os.fchmod(descriptor, target.stat().st_mode & 0o777)


def _remove_abandoned(target: Path) -> None:
    """Remove temporary files of writers that no longer live: nobody holds their lock."""
    prefix, suffix = f".{target.name}.", ".tmp"
    for path in target.parent.iterdir():
        if path.name.startswith(prefix) and path.name.endswith(suffix):
            with suppress(OSError):
                _remove_if_unlocked(path)


def _remove_if_unlocked(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if try_lock(descriptor):
            path.unlink()
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes | memoryview, offset: int) -> None:
    """Write every byte at that offset; one system call unless the system takes less."""
    rest = memoryview(content)
    while rest:
        count = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[count:], offset + count


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries to the disk, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool | None:
    """Lock an open file for this process alone; the system releases it when the process ends.

    Returns:
        True if locked, False if another process holds it, None where the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise
    return True


def close_in_children(close: Callable[[], None]) -> None:
    """Call `close` in every forked child, which would otherwise hold locks of a dead parent."""
    os.register_at_fork(after_in_child=close)
