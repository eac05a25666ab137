"""From what was typed to checkpoints in order: files, folders, globs."""

from __future__ import annotations

import dataclasses
import glob
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from landscape_cli.checkpoints import folders
from landscape_cli.checkpoints.contract import UNKNOWN_STEP, CheckpointInfo
from landscape_cli.checkpoints.damage import listed, readable
from landscape_cli.checkpoints.reading import describe, hash_files, label_of
from landscape_cli.errors import CheckpointError

DAMAGED = "damaged"
"""Format of a checkpoint of a trajectory that cannot be described; reading it says why."""

_STEP = re.compile(r"(?:step|iter|iteration|checkpoint|ckpt)[=_\-]?(\d+)", re.IGNORECASE)


def find(paths: Sequence[str | Path]) -> list[CheckpointInfo]:
    """Return the checkpoints that paths, folders and globs name, in the order of training.

    They are ordered by training step, then by the number in the file name, then as given. A
    folder with ``.metadata``, an index of shards, or ``config.json`` beside weights is one
    checkpoint; any other folder stands for the checkpoints directly in it. One of several that
    is damaged is listed with the format ``damaged``, so that the others can be measured.

    Args:
        paths: files, folders or globs.

    Returns:
        What is known of each, with labels that are unique among them.

    Raises:
        CheckpointError: If nothing is found, one is named twice, or none can be read.
    """
    found = []
    for path in paths:
        with readable(Path(path)):
            found += _expand(path)
    _refuse_repeats(found)
    infos = _describe_all(found)
    order = sorted(
        range(len(infos)), key=lambda i: (infos[i].training_step, _number(infos[i].path))
    )
    labels = _labels([infos[i].path for i in order])
    return [
        dataclasses.replace(infos[i], label=label) for i, label in zip(order, labels, strict=True)
    ]


def _expand(text: str | Path) -> list[Path]:
    path = Path(text)
    if path.is_dir():
        return [path] if folders.is_checkpoint(path) else _inside(path)
    if path.exists():
        return [path]
    if glob.has_magic(str(text)):
        return _matching(str(text))
    raise CheckpointError("there is no such checkpoint", seen=str(text), hint=_hint(path))


def _hint(path: Path) -> str:
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist either"
    near = [item.name for item in folders.weight_files(path.parent)]
    return f"the folder has {listed(near)}" if near else "check the path"


def _inside(folder: Path) -> list[Path]:
    files = folders.weight_files(folder)
    nested = sorted(p for p in folder.iterdir() if p.is_dir() and folders.is_checkpoint(p))
    if not files and not nested:
        present = sorted(item.name for item in folder.iterdir())
        raise CheckpointError(
            "the folder holds no checkpoints",
            seen=f"{folder}: {listed(present) if present else 'it is empty'}",
            hint=f"a folder with {', '.join(folders.SUFFIXES)} files or checkpoint folders in it",
        )
    _refuse_shards(files)
    return [*files, *nested]


def _refuse_shards(files: Sequence[Path]) -> None:
    shards = [path.name for path in files if folders.is_shard(path)]
    if shards:
        raise CheckpointError(
            "the folder holds shards without the index that lists them",
            seen=listed(shards),
            hint="copy the model.safetensors.index.json beside them",
        )


def _matching(pattern: str) -> list[Path]:
    matches = [Path(match) for match in sorted(glob.glob(pattern, recursive=True))]  # noqa: PTH207 - absolute patterns too
    found = [
        match
        for match in matches
        if folders.is_weight_file(match) or (match.is_dir() and folders.is_checkpoint(match))
    ]
    if not found:
        raise CheckpointError(
            "the pattern matches no checkpoint",
            seen=f"{pattern}: {listed([match.name for match in matches]) or 'nothing'}",
            hint="quote the pattern, or list the files",
        )
    return found


def _refuse_repeats(paths: Sequence[Path]) -> None:
    counts = Counter(path.resolve() for path in paths)
    repeated = sorted(str(path) for path, count in counts.items() if count > 1)
    if repeated:
        raise CheckpointError(
            "a checkpoint is given twice", seen=listed(repeated), hint="name each checkpoint once"
        )


def _describe_all(paths: Sequence[Path]) -> list[CheckpointInfo]:
    infos: list[CheckpointInfo] = []
    first_error: CheckpointError | None = None
    for path in paths:
        try:
            infos.append(describe(path))
        except CheckpointError as error:
            if len(paths) == 1:
                raise
            first_error = first_error or error
            infos.append(_damaged(path))
    if first_error is not None and all(info.format == DAMAGED for info in infos):
        raise first_error
    return infos


def _damaged(path: Path) -> CheckpointInfo:
    return CheckpointInfo(path, label_of(path), DAMAGED, sha256=_hash_if_readable(path))


def _hash_if_readable(path: Path) -> str:
    """Return the hash of what is there; nothing if it has gone or may not be read."""
    try:
        with readable(path):
            inside = (
                sorted(item for item in path.iterdir() if item.is_file()) if path.is_dir() else ()
            )
            return hash_files(path, tuple(inside) or (path,))
    except CheckpointError:
        return ""


def _number(path: Path) -> int:
    """Return the number in a name: the one after ``step`` if there is one, else the last."""
    name = label_of(path)
    numbers = _STEP.findall(name) or re.findall(r"\d+", name)
    return int(numbers[-1][:300]) if numbers else UNKNOWN_STEP


def _labels(paths: Sequence[Path]) -> list[str]:
    """Return the shortest names that tell the paths apart: with as many folders as it takes."""
    labels = [label_of(path) for path in paths]
    for depth in range(1, max((len(path.resolve().parts) for path in paths), default=1)):
        counts = Counter(labels)
        if len(counts) == len(labels):
            return labels
        labels = [
            label if counts[label] == 1 else _longer(path, depth)
            for label, path in zip(labels, paths, strict=True)
        ]
    return labels if len(set(labels)) == len(labels) else [str(path) for path in paths]


def _longer(path: Path, depth: int) -> str:
    parents = path.resolve().parent.parts
    return "/".join((*parents[-depth:], label_of(path)))
