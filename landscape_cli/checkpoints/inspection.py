"""What a checkpoint holds, as plain data, and a `probe` command to start from."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from landscape_cli.checkpoints import architectures
from landscape_cli.checkpoints.contents import DEFAULT, Contents, Entry
from landscape_cli.checkpoints.contract import CheckpointInfo
from landscape_cli.checkpoints.damage import readable
from landscape_cli.checkpoints.formats import open_contents
from landscape_cli.checkpoints.reading import info_of
from landscape_cli.errors import CheckpointError, SpecError
from landscape_cli.specs import ComponentSpec

_NORM_NAME = re.compile(r"(norm|^ln|_ln|^bn|rms)", re.IGNORECASE)
_BLOCK = 1 << 22
"""Elements looked at together when non-finite ones are searched."""
_MOST_CHECKED = 4
"""Times the size of the files that are looked at; tensors may share memory without end."""


@dataclass(frozen=True)
class TensorRow:
    """One tensor: ``dtype`` as torch spells it, without ``torch.``."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Total:
    """How much of a checkpoint has one dtype."""

    tensors: int
    elements: int
    bytes: int


@dataclass(frozen=True)
class NormLayer:
    """A normalisation layer, as far as its tensors tell.

    Attributes:
        name: of the module.
        kind: ``batch`` if it has running statistics, ``layer or group`` if it has weight and
            bias, ``rms`` if it has a weight alone.
        features: length of its tensors.
    """

    name: str
    kind: str
    features: int


@dataclass(frozen=True)
class Inspection:
    """What a checkpoint holds.

    Attributes:
        info: path, label, format, training step, learning rate, hash.
        tensors: every tensor of the default weights, in the order of the file.
        totals: amounts by dtype.
        norm_layers: layers that normalise, by their names and shapes.
        variants: names of the other sets of weights.
        optimiser: whether the state of an optimiser is there too.
        non_finite: names of tensors with infinities or NaN.
        family: what it seems to be a checkpoint of, empty where unknown.
        model: a model spec to start from, empty where unknown.
        data: the data spec that the file names, empty where it names none.
        placeholders: the options of the suggested command that are yet to be filled in.
        suggested_command: a `landscape probe` command to start from.
        notes: what had to be done to read it.
    """

    info: CheckpointInfo
    tensors: tuple[TensorRow, ...]
    totals: Mapping[str, Total]
    norm_layers: tuple[NormLayer, ...]
    variants: tuple[str, ...]
    optimiser: bool
    non_finite: tuple[str, ...]
    family: str
    model: str
    data: str
    placeholders: tuple[str, ...]
    suggested_command: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the inspection as JSON has it."""
        values = dataclasses.asdict(self)
        values["info"]["path"] = str(self.info.path)
        return values


def inspect(path: str | Path) -> Inspection:
    """Return what a checkpoint holds.

    Args:
        path: a file, or a folder that is one checkpoint.

    Raises:
        CheckpointError: If it cannot be read. Nothing in it is executed.
    """
    path = Path(path)
    contents = open_contents(path)
    entries = contents.sets[DEFAULT]
    notes = list(contents.notes)
    with readable(path):
        non_finite = _non_finite(entries, contents, notes)
    rows = tuple(
        TensorRow(name, tuple(entry.shape), _short(entry.dtype)) for name, entry in entries.items()
    )
    info = info_of(path, contents)
    guess = _guess(path, rows, contents)
    data = _spec(contents, "data")
    command, placeholders = _suggest(info, guess.model, data)
    return Inspection(
        info=info,
        tensors=rows,
        totals=_totals(entries),
        norm_layers=_norm_layers(rows),
        variants=tuple(name for name in contents.sets if name != DEFAULT),
        optimiser=contents.optimiser,
        non_finite=non_finite,
        family=guess.family,
        model=guess.model,
        data=data,
        placeholders=placeholders,
        suggested_command=command,
        notes=tuple(notes),
    )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _totals(entries: Mapping[str, Entry]) -> dict[str, Total]:
    totals: dict[str, Total] = {}
    for entry in entries.values():
        old = totals.get(_short(entry.dtype), Total(0, 0, 0))
        count = math.prod(entry.shape)
        totals[_short(entry.dtype)] = Total(
            old.tensors + 1, old.elements + count, old.bytes + count * entry.dtype.itemsize
        )
    return totals


def _norm_layers(rows: tuple[TensorRow, ...]) -> tuple[NormLayer, ...]:
    shapes = {row.name: row.shape for row in rows}
    modules = dict.fromkeys(name.rpartition(".")[0] for name in shapes)
    found = (_norm_layer(module, shapes) for module in modules)
    return tuple(layer for layer in found if layer is not None)


def _norm_layer(module: str, shapes: Mapping[str, tuple[int, ...]]) -> NormLayer | None:
    prefix = f"{module}." if module else ""
    mean, weight = shapes.get(f"{prefix}running_mean"), shapes.get(f"{prefix}weight")
    if mean is not None and len(mean) == 1:
        return NormLayer(module, "batch", mean[0])
    named = _NORM_NAME.search(module.rpartition(".")[2])
    if named is None or weight is None or len(weight) != 1:
        return None
    kind = "layer or group" if f"{prefix}bias" in shapes else "rms"
    return NormLayer(module, kind, weight[0])


def _non_finite(
    entries: Mapping[str, Entry], contents: Contents, notes: list[str]
) -> tuple[str, ...]:
    budget = _MOST_CHECKED * sum(file.stat().st_size for file in contents.files)
    names = []
    for name, entry in entries.items():
        budget -= math.prod(entry.shape) * entry.dtype.itemsize
        if budget < 0:
            notes.append("tensors share memory: not all were searched for non-finite values")
            break
        try:
            if not _is_finite(entry.load()):
                names.append(name)
        except CheckpointError as error:
            notes.append(f"{name}: {error.what}")
    return tuple(names)


def _is_finite(tensor: Tensor) -> bool:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    blocks = torch.split(tensor.resolve_conj().reshape(-1), _BLOCK)
    return all(bool(torch.isfinite(_wide(block)).all()) for block in blocks)


def _wide(block: Tensor) -> Tensor:
    """Return types of one byte as float32, as not all kernels know them."""
    return block.float() if block.dtype.itemsize == 1 else block


def _guess(path: Path, rows: tuple[TensorRow, ...], contents: Contents) -> architectures.Guess:
    exact = _spec(contents, "model")
    if exact:
        return architectures.Guess(exact, exact)
    if contents.format == "hugging-face" and contents.family:
        spec = f"hf:{path}" if "?" not in str(path) else ""
        return architectures.Guess(f"transformers {contents.family}", spec)
    found = architectures.guess({row.name: row.shape for row in rows})
    return found or architectures.Guess(contents.family)


def _spec(contents: Contents, what: str) -> str:
    """Return a spec that the file's metadata give, if it is one and can be shown."""
    text = contents.metadata.get(what, "")
    if not text or len(text) > 1000 or not text.isprintable():
        return ""
    try:
        ComponentSpec.parse(text, what)
    except SpecError:
        return ""
    return text


def _suggest(info: CheckpointInfo, model: str, data: str) -> tuple[str, tuple[str, ...]]:
    options = {"--model": model or "FILE.py:FACTORY", "--data": data or "FILE.py:FACTORY"}
    placeholders = [name for name, given in (("--model", model), ("--data", data)) if not given]
    if info.learning_rate is None:
        options["--lr"] = "0.1"
        placeholders.append("--lr")
    if model.startswith("hf:"):
        options["--loss"] = "model"
    words = [word for option in options.items() for word in option]
    command = ["landscape", "probe", str(info.path), *words, "-o", "run.h5"]
    return shlex.join(command), tuple(placeholders)
