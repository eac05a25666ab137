"""From a path to named tensors, and to what can be said before they are loaded."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

from landscape_cli.checkpoints.contents import DEFAULT, Contents, Entries
from landscape_cli.checkpoints.contract import Checkpoint, CheckpointInfo
from landscape_cli.checkpoints.damage import listed, readable, shown
from landscape_cli.checkpoints.formats import open_contents
from landscape_cli.errors import CheckpointError


def describe(path: str | Path) -> CheckpointInfo:
    """Return label, format, training step, learning rate and hash, without loading tensors.

    Args:
        path: a file, or a folder that is one checkpoint.

    Raises:
        CheckpointError: If it cannot be read. Nothing in it is executed.
    """
    path = Path(path)
    return info_of(path, open_contents(path))


def read(path: str | Path, *, weights: str = DEFAULT) -> Checkpoint:
    """Return the tensors of a checkpoint by name, and what is known of it.

    Args:
        path: a file, or a folder that is one checkpoint.
        weights: the set of weights, ``default`` or one that `Checkpoint.variants` names.

    Returns:
        The checkpoint. Its tensors are views of the mapped file where the format allows it.

    Raises:
        CheckpointError: If it cannot be read, or has no such weights. Nothing in it is executed.
    """
    path = Path(path)
    contents = open_contents(path)
    entries = _chosen(path, contents, weights)
    with readable(path):
        tensors = {name: entry.load() for name, entry in entries.items()}
    variants = tuple(name for name in contents.sets if name != DEFAULT)
    return Checkpoint(info_of(path, contents), tensors, variants, tuple(contents.notes))


def _chosen(path: Path, contents: Contents, weights: str) -> Entries:
    if weights not in contents.sets:
        raise CheckpointError(
            f"the checkpoint has no weights named {shown(weights)!r}",
            seen=f"{path.name}: {listed(list(contents.sets), 12)}",
            hint="--weights with one of these, or leave it out",
        )
    return contents.sets[weights]


def info_of(path: Path, contents: Contents) -> CheckpointInfo:
    """Return what is known of the contents of a path."""
    return CheckpointInfo(
        path=path,
        label=label_of(path),
        format=contents.format,
        training_step=contents.training_step,
        learning_rate=contents.learning_rate,
        sha256=hash_files(path, contents.files),
    )


def label_of(path: Path) -> str:
    """Return the short name of a checkpoint: a folder's name, a file's without its suffix."""
    if path.is_dir() or path.name.endswith(".index.json"):
        return (path if path.is_dir() else path.parent).resolve().name
    return path.stem


def hash_files(path: Path, files: Sequence[Path]) -> str:
    """Return the SHA-256 of a file's bytes; of sorted names and bytes where there are several."""
    with readable(path):
        if len(files) == 1 and path.is_file():
            return _hash_bytes(files[0])
        whole = hashlib.sha256()
        for file in sorted(files):
            whole.update(f"{file.name}\0{_hash_bytes(file)}\n".encode("utf-8", "surrogateescape"))
        return whole.hexdigest()


def _hash_bytes(file: Path) -> str:
    state = file.stat()
    return _hash_version(file.resolve(), state.st_size, state.st_mtime_ns, state.st_ino)


@functools.lru_cache(maxsize=4096)
def _hash_version(file: Path, *_: int) -> str:
    """Hash one state of a file, once for a process that describes and then reads it."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
