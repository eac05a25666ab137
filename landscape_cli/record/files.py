"""Checkpoint files: written under another name, flushed to the disk, then renamed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file

from landscape_cli.disk import sync_folder
from landscape_cli.errors import CheckpointError
from landscape_cli.record.weights import Weights

PATTERN = "step-*.safetensors"
UNFINISHED = ".tmp"


def file_name(step: int) -> str:
    """Return the name of a checkpoint; the names sort like the steps up to 999,999.

    Example:
        >>> file_name(100)
        'step-000100.safetensors'
    """
    return f"step-{step:06d}.safetensors"


def step_of(path: Path) -> int | None:
    """Return the step in a checkpoint's name, None where the name is not one of ours."""
    digits = path.name.removeprefix("step-").removesuffix(".safetensors")
    return int(digits) if digits.isdecimal() and path.name == file_name(int(digits)) else None


def recorded(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, ordered by step."""
    found = [(step_of(path), path) for path in folder.glob(PATTERN)]
    return [path for _, path in sorted((step, path) for step, path in found if step is not None)]


def write_checkpoint(path: Path, weights: Weights, metadata: Mapping[str, str]) -> None:
    """Write a safetensors file that is either whole or not there.

    Raises:
        CheckpointError: If the disk or the format refuses.
    """
    temporary = path.with_name(f".{path.name}{UNFINISHED}")
    try:
        save_file(dict(weights.tensors), temporary, metadata=dict(metadata))
        _flush(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(
            "the checkpoint cannot be written",
            seen=f"{path}: {error}",
            hint="check the folder, its permissions and the space left",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def file_hash(path: Path) -> str:
    """Return the sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_unfinished(folder: Path) -> None:
    """Remove what a recorder that was killed in the middle of writing has left."""
    for path in folder.glob(f".{PATTERN}{UNFINISHED}"):
        path.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
