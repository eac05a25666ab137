"""Checkpoints in several files: the index that lists them, and where they may lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from landscape_cli.checkpoints.damage import DamagedError, shown

_LARGEST_TEXT = 1 << 26
"""Bytes of JSON that are read: an index takes about a hundred for each tensor."""


def read_json(path: Path) -> Any:
    """Return the content of a JSON file of sensible size.

    Raises:
        DamagedError: If it is larger.
        ValueError: If it is not JSON.
    """
    with path.open("rb") as file:
        text = file.read(_LARGEST_TEXT + 1)
    if len(text) > _LARGEST_TEXT:
        raise DamagedError(f"{path.name} is larger than {_LARGEST_TEXT} bytes")
    return json.loads(text)


def read_index(path: Path) -> dict[str, Path]:
    """Return the file that holds each tensor.

    Raises:
        DamagedError: If it is not an index, or names a file outside its folder.
    """
    index = read_json(path)
    names = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(names, dict) or not all(isinstance(file, str) for file in names.values()):
        raise DamagedError(f"{path.name} has no weight_map")
    if not names:
        raise DamagedError(f"{path.name} lists no tensors")
    files = {file: inside(path.parent, file) for file in set(names.values())}
    return {name: files[file] for name, file in names.items()}


def inside(folder: Path, name: str) -> Path:
    """Return the file `name` of a folder.

    Links may not lead out of it, except into the ``blobs`` that a Hugging Face cache keeps beside
    its snapshots.

    Raises:
        DamagedError: If it leads elsewhere.
        FileNotFoundError: If there is no such file.
    """
    if not name or "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise DamagedError(f"a file outside the folder is named: {shown(name)}")
    real = (folder / name).resolve()
    home = folder.resolve()
    allowed = [home]
    if home.parent.name == "snapshots":
        allowed.append(home.parent.parent / "blobs")
    if not any(real.is_relative_to(place) for place in allowed):
        raise DamagedError(f"a link leads out of the folder: {shown(name)}")
    if not real.is_file():
        raise FileNotFoundError(2, f"it names {shown(name)}, which is missing")
    return folder / name
