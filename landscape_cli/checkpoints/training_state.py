"""The training step and the learning rate that a checkpoint tells of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from landscape_cli.checkpoints.contents import Entry, step_size, whole_step
from landscape_cli.checkpoints.contract import UNKNOWN_STEP
from landscape_cli.checkpoints.damage import DAMAGE
from landscape_cli.checkpoints.shards import read_json
from landscape_cli.checkpoints.state_dicts import is_optimiser, mapping_of
from landscape_cli.checkpoints.torch_file import read_tree

_STEP_KEYS = ("training_step", "global_step", "step", "iteration", "iter")
_RATE_KEYS = ("learning_rate", "lr")
_OPTIMISER_KEYS = (
    "optimizer_states",
    "optimizer",
    "optimizer_state_dict",
    "optimizer_state",
    "optim",
    "optimizers",
    "opt",
)
TRAINER_STATE = "trainer_state.json"
_OPTIMISER_FILES = ("optimizer.pt", "optimizer.bin")


def training_step(tree: Any) -> int:
    """Return the step that a tree of values was saved at, −1 if it does not say."""
    mapping = mapping_of(tree)
    steps = (whole_step(_scalar(mapping.get(key))) for key in _STEP_KEYS)
    return next((step for step in steps if step != UNKNOWN_STEP), UNKNOWN_STEP)


def learning_rate(tree: Any) -> float | None:
    """Return the learning rate of the optimiser's first group, None if there is none."""
    mapping = mapping_of(tree)
    rates = [_rate_of(state) for state in optimisers(tree)]
    rates += [step_size(_scalar(mapping.get(key))) for key in _RATE_KEYS]
    return next((rate for rate in rates if rate is not None), None)


def optimisers(tree: Any) -> Iterator[Any]:
    """Yield the states of optimisers in a tree, or the tree itself if it is one."""
    mapping = mapping_of(tree)
    if is_optimiser(tree):
        yield tree
    for key in _OPTIMISER_KEYS:
        value = mapping.get(key)
        if is_optimiser(value):
            yield value
        else:
            yield from (item for item in mapping_of(value).values() if is_optimiser(item))


def _rate_of(optimiser: Any) -> float | None:
    groups = mapping_of(mapping_of(optimiser).get("param_groups"))
    first = next(iter(groups.values()), None)
    return step_size(_scalar(mapping_of(first).get("lr")))


def _scalar(value: Any) -> Any:
    if isinstance(value, Entry) and math.prod(value.shape) == 1:
        return value.load().item()
    return value


def beside(folder: Path, notes: list[str]) -> tuple[int, float | None, bool]:
    """Return step, learning rate and whether an optimiser is kept, from a Trainer's files.

    A file that cannot be read costs only what it would have told; a note says so.
    """
    step = _read(folder / TRAINER_STATE, read_json, notes)
    files = [folder / name for name in _OPTIMISER_FILES if (folder / name).is_file()]
    states = [_read(file, read_tree, notes) for file in files]
    rates = [rate for state in states if (rate := learning_rate(state)) is not None]
    rate = rates[0] if rates else _last_logged_rate(step)
    return training_step(step), rate, bool(files)


def _last_logged_rate(state: Any) -> float | None:
    history = mapping_of(state).get("log_history")
    logged = [entry for entry in history or [] if isinstance(entry, Mapping)]
    rates = [step_size(entry.get("learning_rate")) for entry in reversed(logged)]
    return next((rate for rate in rates if rate is not None), None)


def _read(path: Path, read: Any, notes: list[str]) -> Any:
    if not path.is_file():
        return None
    try:
        return read(path)
    except (OSError, *DAMAGE) as error:
        notes.append(f"{path.name} could not be read: {error}")
        return None
