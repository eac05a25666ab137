"""Finding the files of a published data set, and saying what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from landscape_cli.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Sequence


def find_folder(root: str, subfolders: Sequence[str], names: Sequence[Sequence[str]]) -> Path:
    """Return the folder, `root` or one below, that holds one of every group of names.

    Args:
        root: what the user named.
        subfolders: where archives and other tools put the files, below `root`.
        names: for every file that is needed, the names that it may have.

    Raises:
        AdapterError: If there is no such folder, naming what is missing.
    """
    top = Path(root).expanduser()
    if not top.is_dir():
        raise AdapterError(
            "the folder of the data set does not exist", seen=root or "(nothing)", hint="root=PATH"
        )
    candidates = [top, *(top / name for name in subfolders)]
    for folder in candidates:
        if not missing_files(folder, names):
            return folder
    best = min(candidates, key=lambda folder: len(missing_files(folder, names)))
    raise AdapterError(
        "the folder lacks files of the data set",
        seen=f"{best} lacks {', '.join(missing_files(best, names))}",
        hint=_hint(top, candidates),
    )


def missing_files(folder: Path, names: Sequence[Sequence[str]]) -> list[str]:
    """Return the first name of every group of which the folder holds none."""
    return [group[0] for group in names if first_file(folder, group) is None]


def first_file(folder: Path, group: Sequence[str]) -> Path | None:
    """Return the first file of the group that the folder holds."""
    return next((folder / name for name in group if (folder / name).is_file()), None)


def _hint(top: Path, candidates: Sequence[Path]) -> str:
    pickled = [top / "cifar-10-batches-py", top / "cifar-100-python", *candidates]
    names = ("data_batch_1", "batches.meta", "meta")
    if any((folder / name).is_file() for folder in pickled for name in names):
        return "these are pickles, which are never opened: get the archive's binary version"
    return "unpack the archive of the binary version into the folder"


def read_bytes(path: Path) -> bytes:
    """Return what the file holds.

    Raises:
        AdapterError: If it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise AdapterError(
            "a file of the data set cannot be read",
            seen=f"{path}: {error.strerror}",
            hint="check its permissions",
        ) from None
