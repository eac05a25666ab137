"""Where the weights are in what a training script saved, and under which names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from landscape_cli.checkpoints.contents import DEFAULT, Entries, Entry
from landscape_cli.checkpoints.damage import DamagedError, listed, shown
from landscape_cli.checkpoints.pickles import Inert

EMA = "ema"
LORA = "lora"
EVERYTHING = "all"

WEIGHT_KEYS = (
    "state_dict",
    "model_state_dict",
    "model",
    "module",
    "model_state",
    "net_state_dict",
    "network",
    "net",
    "params",
    "weights",
)
EMA_KEYS = (
    "state_dict_ema",
    "ema_state_dict",
    "model_ema_state_dict",
    "ema_model_state_dict",
    "model_ema",
    "ema_model",
    "params_ema",
    "ema",
)
_EMA_PREFIXES = ("model_ema.", "ema_model.", "module_ema.", "ema.")
_LORA_NAME = re.compile(r"(^|\.)lora_[A-Za-z]")
_MOST_CHARACTERS = 1 << 25
"""Of names, in one checkpoint; shared and nested values could otherwise multiply without end."""
_DEEPEST = 200


@dataclass
class Found:
    """The sets of weights in a tree, and what is to be said of them."""

    sets: dict[str, Entries]
    notes: list[str] = field(default_factory=list)


def find_sets(tree: Any) -> Found:
    """Return the weights in a tree of values, and the averaged and other sets beside them.

    Raises:
        DamagedError: If there is not one named tensor.
    """
    walk = _Walk()
    entries, notes = walk.locate(tree)
    sets: dict[str, Entries] = {DEFAULT: entries}
    averaged = _first_of(tree, EMA_KEYS)
    if averaged:
        sets[EMA] = averaged
    if not entries and averaged:
        sets[DEFAULT] = averaged
        notes = ["the weights are the averaged ones: the file holds no others"]
    if not sets[DEFAULT]:
        raise DamagedError(f"no named tensors were found among {_keys(tree)}")
    for key, members in walk.parts.items():
        sets.setdefault(key, members)
    return Found(_with_copies(sets, notes), notes)


def named_sets(entries: Entries) -> Found:
    """Return the sets that a flat list of named tensors holds."""
    notes: list[str] = []
    return Found(_with_copies({DEFAULT: entries}, notes), notes)


def root_class(tree: Any) -> str:
    """Return the class of the module in a tree, empty if it holds none."""
    candidates = [tree, *(mapping_of(tree).get(key) for key in (*WEIGHT_KEYS, *EMA_KEYS))]
    found = next((item for item in candidates if is_module(item)), None)
    return _name(found) if found is not None else ""


def _name(module: Inert) -> str:
    return shown(module.reference)


def mapping_of(value: Any) -> Mapping[Any, Any]:
    """Return the entries of anything like a dictionary, nothing of anything else."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, Inert):
        return value.entries or value.attributes
    return {}


def is_module(value: Any) -> bool:
    """Whether a value stands for an ``nn.Module``."""
    if not isinstance(value, Inert):
        return False
    return isinstance(value.attributes.get("_modules"), dict) or _is_scripted(value)


def is_optimiser(value: Any) -> bool:
    """Whether a value is the state of an optimiser."""
    return isinstance(value, dict | Inert) and "param_groups" in mapping_of(value)


def _is_scripted(value: Any) -> bool:
    return isinstance(value, Inert) and value.reference.module.startswith("__torch__")


def _keys(tree: Any) -> str:
    keys = list(mapping_of(tree))
    return listed(keys) if keys else f"one {type(tree).__name__}"


def _first_of(tree: Any, keys: tuple[str, ...]) -> dict[str, Entry]:
    for key in keys:
        entries, _ = _Walk().locate(mapping_of(tree).get(key))
        if entries:
            return entries
    return {}


class _Walk:
    """One pass over a tree, of bounded length."""

    def __init__(self) -> None:
        self._characters = 0
        self.parts: dict[str, Entries] = {}

    def locate(self, tree: Any, depth: int = 0) -> tuple[dict[str, Entry], list[str]]:
        """Return the tensors that look like the weights, and what was assumed."""
        if is_module(tree):
            entries = dict(self._of_module(tree, "", 0))
            return entries, [f"rebuilt from a pickled {_name(tree)}; its code was not run"]
        mapping = mapping_of(tree)
        for key in (key for key in WEIGHT_KEYS if key in mapping and depth < 4):
            entries, notes = self.locate(mapping[key], depth + 1)
            if entries:
                return entries, notes
        return self._remaining(mapping)

    def _remaining(self, mapping: Mapping[Any, Any]) -> tuple[dict[str, Entry], list[str]]:
        skipped = (*EMA_KEYS, "state", "param_groups") if is_optimiser(mapping) else EMA_KEYS
        kept = {
            key: value
            for key, value in mapping.items()
            if key not in skipped and not is_optimiser(value)
        }
        entries = dict(self._flatten(kept, "", 0))
        direct = any(isinstance(value, Entry) for value in kept.values())
        groups = {} if direct else self._groups(kept)
        if len(groups) == 1:
            (key, members), *_ = groups.items()
            return dict(members), [f"the weights are those under {shown(key)!r}"]
        self.parts.update(groups)
        return entries, []

    def _groups(self, mapping: Mapping[Any, Any]) -> dict[str, Entries]:
        groups = {str(key): dict(self._flatten(value, "", 0)) for key, value in mapping.items()}
        return {key: entries for key, entries in groups.items() if entries}

    def _flatten(self, value: Any, name: str, depth: int) -> Iterator[tuple[str, Entry]]:
        self._charge(name, depth)
        if isinstance(value, Entry):
            yield name, value
        elif is_module(value):
            yield from self._of_module(value, f"{name}." if name else "", depth)
        elif not is_optimiser(value):
            for key, child in mapping_of(value).items():
                if isinstance(key, str | int):
                    yield from self._flatten(
                        child, f"{name}.{key}" if name else str(key), depth + 1
                    )

    def _of_module(self, module: Inert, prefix: str, depth: int) -> Iterator[tuple[str, Entry]]:
        self._charge(prefix, depth)
        tensors, children = _scripted(module) if _is_scripted(module) else _plain(module)
        for key, value in tensors.items():
            self._charge(prefix, depth)
            if isinstance(value, Entry):
                yield f"{prefix}{key}", value
        for key, child in children.items():
            if is_module(child):
                yield from self._of_module(child, f"{prefix}{key}.", depth + 1)

    def _charge(self, name: str, depth: int) -> None:
        self._characters += len(name) + 1
        if self._characters > _MOST_CHARACTERS or depth > _DEEPEST:
            raise DamagedError("the values are nested or repeated without end")


def _plain(module: Inert) -> tuple[dict[Any, Any], dict[Any, Any]]:
    attributes = module.attributes
    hidden = attributes.get("_non_persistent_buffers_set")
    hidden = hidden if isinstance(hidden, list | set | frozenset | tuple) else ()
    buffers = {
        key: value for key, value in _dict(attributes.get("_buffers")).items() if key not in hidden
    }
    tensors = {**_dict(attributes.get("_parameters")), **buffers}
    return tensors, _dict(attributes.get("_modules"))


def _scripted(module: Inert) -> tuple[dict[Any, Any], dict[Any, Any]]:
    return module.attributes, module.attributes


def _dict(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _with_copies(sets: dict[str, Entries], notes: list[str]) -> dict[str, Entries]:
    """Name the averaged and low-rank tensors that lie among the others."""
    entries = sets[DEFAULT]
    averaged, others = _averaged(entries)
    if averaged and EMA not in sets:
        sets = {**sets, DEFAULT: others, EMA: {**others, **averaged}, EVERYTHING: entries}
        notes.append(
            f"{len(entries) - len(others)} tensors are averaged copies: --weights ema uses them"
        )
    low_rank = {name: entry for name, entry in entries.items() if _LORA_NAME.search(name)}
    if low_rank and len(low_rank) < len(entries):
        sets = {**sets, LORA: low_rank}
    return sets


def _averaged(entries: Entries) -> tuple[dict[str, Entry], Entries]:
    """Split averaged copies, under the names of their originals, from the other tensors."""
    for prefix in _EMA_PREFIXES:
        copies = {name: entry for name, entry in entries.items() if name.startswith(prefix)}
        others = {name: entry for name, entry in entries.items() if name not in copies}
        originals = _originals(others)
        named = {
            originals[key]: entry
            for name, entry in copies.items()
            if (key := _undotted(name.removeprefix(prefix))) in originals
        }
        if named:
            return named, others
    return {}, entries


def _originals(names: Entries) -> dict[str, str]:
    """Return full names by what averaging wrappers keep of them: no dots, no outer ``model.``."""
    short = {_undotted(name.removeprefix("model.")): name for name in names}
    return {**short, **{_undotted(name): name for name in names}}


def _undotted(name: str) -> str:
    return name.removeprefix("module.").replace(".", "")
