"""Which folder is one checkpoint, and which files in a folder are checkpoints."""

from __future__ import annotations

import re
from pathlib import Path

SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")
DISTRIBUTED_METADATA = ".metadata"
CONFIG = "config.json"
INDEX_SUFFIXES = (".safetensors.index.json", ".bin.index.json")

_STATE = "optimi[sz]er|optim|optim_states?|scheduler|lr_scheduler|scaler|rng_state|random_states?"
_NOT_WEIGHTS = re.compile(
    rf"^({_STATE}|training_args|scheduler_state)([._\-\d]|$)|[._-]({_STATE})$", re.IGNORECASE
)
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
WEIGHT_STEMS = ("model", "pytorch_model", "diffusion_pytorch_model")


def is_weight_file(path: Path) -> bool:
    """Whether a file looks like weights: not an optimiser's, scheduler's or generator's state."""
    named = path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    return named and not _NOT_WEIGHTS.search(path.stem) and path.is_file()


def is_shard(path: Path) -> bool:
    """Whether a file's name says that it is one of several shards."""
    return bool(_SHARD.search(path.stem))


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files directly in a folder, sorted by name."""
    return sorted(path for path in folder.iterdir() if is_weight_file(path))


def indices(folder: Path) -> list[Path]:
    """Return the indices of shards directly in a folder, safetensors before others."""
    found = [path for path in sorted(folder.iterdir()) if path.name.endswith(INDEX_SUFFIXES)]
    return sorted(found, key=lambda path: not path.name.endswith(INDEX_SUFFIXES[0]))


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder is one checkpoint: ``.metadata``, an index, ``config.json`` by weights."""
    if (folder / DISTRIBUTED_METADATA).is_file() or indices(folder):
        return True
    return (folder / CONFIG).is_file() and main_weights(folder) is not None


def main_weights(folder: Path) -> Path | None:
    """Return the weight file or index of a folder that holds one model, safetensors before others.

    Where files are named otherwise than by the Hugging Face libraries and there are several, they
    are the steps of a trajectory, and none of them stands for the folder.
    """
    for suffix in SUFFIXES:
        for stem in WEIGHT_STEMS:
            for name in (f"{stem}{suffix}", f"{stem}{suffix}.index.json"):
                if (folder / name).is_file():
                    return folder / name
    files = [*indices(folder), *weight_files(folder)]
    return files[0] if len(files) == 1 or indices(folder) else None


def copy_of(weights: Path, variant: str) -> Path:
    """Return where the Hugging Face libraries keep a variant: ``model.ema.safetensors``."""
    return weights.with_name(f"{weights.stem}.{variant}{weights.suffix}")
