"""Checkpoint files: written under another name, flushed to the disk, then renamed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file

from landscape_cli.errors import CheckpointError
from landscape_cli.record.weights import Weights

PATTERN = "step-*.safetensors"


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

    def write(temporary: Path) -> None:
        save_file(dict(weights.tensors), temporary, metadata=dict(metadata))

    try:
        replace_file(path, write)
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(
            "the checkpoint cannot be written",
            seen=f"{path}: {error}",
            hint="check the folder, its permissions and the space left",
        ) from error


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, and rename it once it is on the disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        _flush(temporary, os.O_RDWR)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # elsewhere a folder cannot be opened, and a rename is durable by itself
        _flush(path.parent, os.O_RDONLY)


def _flush(path: Path, mode: int) -> None:
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
