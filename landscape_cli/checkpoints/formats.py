"""Which format a path is in, by its bytes rather than by its name."""

from __future__ import annotations

from pathlib import Path

from landscape_cli.checkpoints import safetensors_file, state_dicts, torch_file, training_state
from landscape_cli.checkpoints.contents import Contents
from landscape_cli.checkpoints.damage import DamagedError, readable
from landscape_cli.checkpoints.state_dicts import mapping_of
from landscape_cli.errors import CheckpointError


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
        return _open_file(path)


def _open_folder(path: Path) -> Contents:
    raise DamagedError("a folder that is not one checkpoint")


def _open_file(path: Path) -> Contents:
    with path.open("rb") as file:
        start = file.read(9)
    if path.suffix == ".safetensors" or (start[8:] == b"{" and start[4:8] == bytes(4)):
        return _with_named_sets(safetensors_file.open_file(path))
    if start.startswith(b"\x89HDF"):
        raise DamagedError("this is an HDF5 file")
    return _open_torch(path)


def _open_torch(path: Path) -> Contents:
    tree = torch_file.read_tree(path)
    found = state_dicts.find_sets(tree)
    is_lightning = "pytorch-lightning_version" in mapping_of(tree)
    return Contents(
        format="lightning" if is_lightning else "torch",
        sets=found.sets,
        files=(path,),
        training_step=training_state.training_step(tree),
        learning_rate=training_state.learning_rate(tree),
        notes=found.notes,
        family=state_dicts.root_class(tree),
        optimiser=any(True for _ in training_state.optimisers(tree)),
    )


def _with_named_sets(contents: Contents) -> Contents:
    (entries,) = contents.sets.values()
    found = state_dicts.named_sets(entries)
    contents.sets, contents.notes = found.sets, [*contents.notes, *found.notes]
    return contents
