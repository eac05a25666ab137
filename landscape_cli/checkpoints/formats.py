"""Which format a path is in, by its bytes rather than by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from landscape_cli.checkpoints import (
    distributed,
    folders,
    safetensors_file,
    shards,
    state_dicts,
    torch_file,
    training_state,
)
from landscape_cli.checkpoints.contents import DEFAULT, Contents, Entry
from landscape_cli.checkpoints.contract import UNKNOWN_STEP
from landscape_cli.checkpoints.damage import DamagedError, readable, shown
from landscape_cli.checkpoints.state_dicts import mapping_of
from landscape_cli.errors import CheckpointError

_SAFETENSORS_INDEX = ".safetensors.index.json"


def open_contents(path: Path) -> Contents:
    """Describe the checkpoint at `path`, whatever its format, without loading tensors.

    Raises:
        CheckpointError: If it is not there, not a checkpoint, or damaged.
    """
    with readable(path):
        if path.is_dir():
            return _open_folder(path)
        if not path.is_file():
            raise CheckpointError(
                "there is no such checkpoint", seen=str(path), hint="check the path"
            )
        contents = _open_file(path)
        if path.name.split(".")[0] in folders.WEIGHT_STEMS:
            _add_trainer_state(contents, path.parent)
        return contents


def _open_folder(folder: Path) -> Contents:
    if (folder / folders.DISTRIBUTED_METADATA).is_file():
        return _open_distributed(folder)
    weights = folders.main_weights(folder) if folders.is_checkpoint(folder) else None
    if weights is None:
        raise CheckpointError(
            "the folder is not one checkpoint",
            seen=str(folder),
            hint="name one of the checkpoints in it",
        )
    contents = _open_file(weights)
    averaged = folders.copy_of(weights, state_dicts.EMA)
    if averaged.is_file():
        contents.sets[state_dicts.EMA] = _open_file(averaged).sets[DEFAULT]
    _add_config(contents, folder / folders.CONFIG)
    _add_trainer_state(contents, folder)
    return contents


def _open_file(path: Path) -> Contents:
    if path.name.endswith(".index.json"):
        return _open_shards(path)
    with path.open("rb") as file:
        start = file.read(9)
    if path.suffix == ".safetensors" or (start[8:] == b"{" and start[4:8] == bytes(4)):
        return _with_named_sets(safetensors_file.open_file(path))
    if start.startswith(b"\x89HDF"):
        raise DamagedError("this is an HDF5 file")
    return _of_tree(torch_file.read_tree(path), (path,))


def _of_tree(tree: Any, files: tuple[Path, ...]) -> Contents:
    found = state_dicts.find_sets(tree)
    is_lightning = "pytorch-lightning_version" in mapping_of(tree)
    return Contents(
        format="lightning" if is_lightning else "torch",
        sets=found.sets,
        files=files,
        training_step=training_state.training_step(tree),
        learning_rate=training_state.learning_rate(tree),
        notes=found.notes,
        family=state_dicts.root_class(tree),
        optimiser=any(True for _ in training_state.optimisers(tree)),
    )


def _open_distributed(folder: Path) -> Contents:
    found = distributed.read_folder(folder)
    contents = _of_tree(found.tree, found.files)
    contents.format = "distributed"
    return contents


def _open_shards(index: Path) -> Contents:
    places = shards.read_index(index)
    files = tuple(sorted(set(places.values())))
    if index.name.endswith(_SAFETENSORS_INDEX):
        parts = {file: safetensors_file.read_file(file) for file in files}
        entries = _gather(places, {file: dict(part[0]) for file, part in parts.items()})
        metadata = {key: text for part in parts.values() for key, text in part[1].items()}
        return _with_named_sets(safetensors_file.describe_entries(entries, metadata, files))
    trees = {file: state_dicts.find_sets(torch_file.read_tree(file)) for file in files}
    entries = _gather(places, {file: dict(found.sets[DEFAULT]) for file, found in trees.items()})
    return _with_named_sets(Contents("torch", {DEFAULT: entries}, files))


def _gather(places: dict[str, Path], held: dict[Path, dict[str, Entry]]) -> dict[str, Entry]:
    for name, file in places.items():
        if name not in held[file]:
            raise DamagedError(f"{file.name} lacks {shown(name)}, which the index puts there")
    return {name: held[file][name] for name, file in places.items()}


def _with_named_sets(contents: Contents) -> Contents:
    (entries,) = contents.sets.values()
    if not entries:
        raise DamagedError("it holds no tensors")
    found = state_dicts.named_sets(entries)
    contents.sets, contents.notes = found.sets, [*contents.notes, *found.notes]
    return contents


def _add_config(contents: Contents, config: Path) -> None:
    if not config.is_file():
        return
    contents.format = "hugging-face"
    values = shards.read_json(config)
    kind = values.get("model_type") if isinstance(values, dict) else None
    contents.family = kind if isinstance(kind, str) else contents.family


def _add_trainer_state(contents: Contents, folder: Path) -> None:
    step, rate, has_optimiser = training_state.beside(folder, contents.notes)
    if contents.training_step == UNKNOWN_STEP:
        contents.training_step = step
    if contents.learning_rate is None:
        contents.learning_rate = rate
    contents.optimiser = contents.optimiser or has_optimiser
