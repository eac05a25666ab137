"""Where rows come from: local files, a data set saved to disk, or the local cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from landscape_cli.errors import AdapterError
from landscape_huggingface.library import datasets, first_line, offline

BUILDERS = {
    ".jsonl": "json",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
"""Which of datasets' builders reads a file, by its suffix."""

SAVED = ("state.json", "dataset_dict.json")
"""What lies in a folder that ``save_to_disk`` wrote."""


def open_rows(target: str, *, split: str | None, subset: str | None) -> Any:
    """Return the rows of a data set as a `datasets.Dataset`, mapped where it can be.

    Args:
        target: a file, a folder that ``save_to_disk`` wrote, or a name in the local cache.
        split: which part; ``train``, or the only one, if it is left out.
        subset: which configuration of a cached data set.

    Raises:
        AdapterError: If there is no such file, data set or split, or it cannot be read.
    """
    path = Path(target).expanduser()
    try:
        with offline():
            opened = _open(path, target, subset)
    except (OSError, ValueError, KeyError, TypeError, datasets.exceptions.DatasetsError) as error:
        raise AdapterError(
            "the data set cannot be opened",
            seen=f"{target}: {first_line(error)}",
            hint="a .jsonl, .csv, .txt or .parquet file, a folder of save_to_disk, or a data set "
            "that is in the cache",
        ) from error
    rows = _part(opened, split, target)
    if len(rows) == 0:
        raise AdapterError("the data set has no rows", seen=target, hint="check the file")
    return rows


def _open(path: Path, target: str, subset: str | None) -> Any:
    if path.is_file():
        builder = BUILDERS.get(path.suffix.lower())
        if builder is None:
            raise ValueError(f"no reader for files that end on {path.suffix or 'nothing'}")
        extra = {"delimiter": "\t"} if path.suffix.lower() == ".tsv" else {}
        return datasets.load_dataset(builder, data_files=str(path), **extra)
    if path.is_dir() and any((path / name).is_file() for name in SAVED):
        return datasets.load_from_disk(str(path))
    if path.is_dir():
        return datasets.load_dataset(str(path))
    if path.suffix in BUILDERS or path.is_absolute():
        raise FileNotFoundError("no such file or folder")
    return datasets.load_dataset(target, subset)


def _part(opened: Any, split: str | None, target: str) -> Any:
    if not isinstance(opened, Mapping):
        if split is None:
            return opened
        raise AdapterError(
            "the data set has no splits", seen=f"split={split}", hint="leave split out"
        )
    wanted = split or ("train" if "train" in opened or len(opened) != 1 else next(iter(opened)))
    if wanted in opened:
        return opened[wanted]
    raise AdapterError(
        f"the data set has no split {wanted!r}",
        seen=f"{target}: {', '.join(opened)}",
        hint=f"split={next(iter(opened), 'train')}",
    )
