"""Folders that ``torch.distributed.checkpoint`` wrote: metadata, and shards in ``.distcp`` files.

The metadata are a pickle, read by the machine that executes nothing; every shard is a small
``torch.save`` archive inside a larger file. Tensors are put together in this one process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from landscape_cli.checkpoints import pickles, shards, torch_file
from landscape_cli.checkpoints.contents import Entry
from landscape_cli.checkpoints.damage import DamagedError, shown
from landscape_cli.checkpoints.folders import DISTRIBUTED_METADATA
from landscape_cli.checkpoints.mapped import StoredTensor, Window, map_file
from landscape_cli.checkpoints.pickles import Inert
from landscape_cli.checkpoints.reconstruction import named_dtype, rebuild

Sizes = tuple[int, ...]
_MOST_COPIES = 4
"""Times that the bytes of the files may be used; reading and putting together take one each."""


@dataclass(frozen=True)
class _Place:
    """Where the bytes of one shard are."""

    file: str
    offset: int
    length: int


@dataclass(frozen=True)
class _Chunk:
    """A box of a tensor, and where its values are."""

    offsets: Sizes
    sizes: Sizes
    place: _Place


class _Files:
    """The shard files of a folder, each mapped once and each shard parsed once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mapped: dict[str, memoryview] = {}
        self._trees: dict[_Place, Any] = {}
        self._used = 0

    def tree(self, place: _Place) -> Any:
        """Return the value in a shard."""
        if place not in self._trees:
            region = self.region(place)
            self.allow(len(region))
            self._trees[place] = torch_file.tree_of(region)
        return self._trees[place]

    def allow(self, size: int) -> None:
        """Refuse to read or put together many times more bytes than the files hold."""
        self._used += size
        held = sum(map(len, self._mapped.values()))
        if self._used > _MOST_COPIES * held:
            raise DamagedError("the metadata use the same shards over and over")

    def region(self, place: _Place) -> memoryview:
        """Return the bytes of a shard."""
        if place.file not in self._mapped:
            self._mapped[place.file] = map_file(shards.inside(self._folder, place.file))
        data = self._mapped[place.file]
        if place.offset + place.length > len(data):
            raise DamagedError(f"a shard reaches beyond {shown(place.file)}")
        return data[place.offset : place.offset + place.length]


@dataclass(frozen=True, eq=False)
class DistributedTensor(Entry):
    """A tensor in boxes, put together when it is loaded."""

    files: _Files
    shape: Sizes
    dtype: torch.dtype
    chunks: tuple[_Chunk, ...]

    def load(self) -> Tensor:
        """Return the whole tensor; a view of the file where it is in one piece.

        Raises:
            DamagedError: If the boxes do not cover it exactly.
        """
        self._check()
        if len(self.chunks) == 1:
            return self._values(self.chunks[0])
        self.files.allow(math.prod(self.shape) * self.dtype.itemsize)
        whole = torch.empty(self.shape, dtype=self.dtype)
        covered = torch.zeros(self.shape, dtype=torch.bool)
        for chunk in self.chunks:
            box = tuple(
                slice(start, start + size)
                for start, size in zip(chunk.offsets, chunk.sizes, strict=True)
            )
            whole[box] = self._values(chunk)
            covered[box] = True
        if not bool(covered.all()):
            raise DamagedError("the shards of a tensor overlap and leave gaps")
        return whole

    def _check(self) -> None:
        for chunk in self.chunks:
            ends = [o + n for o, n in zip(chunk.offsets, chunk.sizes, strict=True)]
            if len(ends) != len(self.shape) or any(
                end > size for end, size in zip(ends, self.shape, strict=True)
            ):
                raise DamagedError("a shard lies outside its tensor")
        count = sum(math.prod(chunk.sizes) for chunk in self.chunks)
        held = sum(len(self.files.region(chunk.place)) for chunk in self.chunks)
        if count != math.prod(self.shape) or count * self.dtype.itemsize > held:
            raise DamagedError("the shards of a tensor do not make up the tensor")

    def _values(self, chunk: _Chunk) -> Tensor:
        stored = self.files.tree(chunk.place)
        if not isinstance(stored, StoredTensor):
            raise DamagedError("a shard is not a tensor")
        if stored.shape != chunk.sizes or stored.dtype != self.dtype:
            raise DamagedError("a shard has another shape or type than the metadata say")
        return stored.load()


@dataclass(frozen=True)
class Distributed:
    """What a folder holds.

    Attributes:
        tree: nested values as they were saved, with `DistributedTensor` leaves.
        files: the metadata and every shard file.
    """

    tree: dict[Any, Any]
    files: tuple[Path, ...]


def read_folder(folder: Path) -> Distributed:
    """Return the tree of values in a ``torch.distributed.checkpoint`` folder.

    Raises:
        ValueError: If its metadata are not those of such a checkpoint, or name files elsewhere.
    """
    metadata_file = folder / DISTRIBUTED_METADATA
    metadata = pickles.load(Window(map_file(metadata_file)), rebuild)
    kinds, places = _attribute(metadata, "state_dict_metadata"), _places(metadata)
    if not isinstance(kinds, dict) or not kinds:
        raise DamagedError("the metadata list nothing")
    files = _Files(folder)
    values = {name: _value(name, kind, places, files) for name, kind in kinds.items()}
    names = sorted({place.file for found in places.values() for place in found.values()})
    paths = tuple(shards.inside(folder, name) for name in names)
    return Distributed(
        _nested(values, _attribute(metadata, "planner_data")), (metadata_file, *paths)
    )


def _attribute(value: Any, name: str) -> Any:
    return value.attributes.get(name) if isinstance(value, Inert) else None


def _places(metadata: Any) -> dict[Any, dict[Sizes | None, _Place]]:
    """Return where each named value is, by its offsets within the tensor."""
    found: dict[Any, dict[Sizes | None, _Place]] = {}
    stored = _attribute(metadata, "storage_data")
    if not isinstance(stored, dict):
        raise DamagedError("the metadata do not say where the shards are")
    for index, info in stored.items():
        offset = _attribute(index, "offset")
        place = _place(info)
        found.setdefault(_attribute(index, "fqn"), {})[
            None if offset is None else _sizes(offset)
        ] = place
    return found


def _place(info: Any) -> _Place:
    file, offset, length = (
        _attribute(info, name) for name in ("relative_path", "offset", "length")
    )
    if not isinstance(file, str) or not _is_count(offset) or not _is_count(length):
        raise DamagedError("the metadata do not say where a shard is")
    if _attribute(info, "transform_descriptors"):
        raise DamagedError("the shards are compressed or encrypted by an extension")
    return _Place(file, offset, length)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 2**63


def _sizes(value: Any) -> Sizes:
    if not isinstance(value, tuple | list) or not all(map(_is_count, value)):
        raise DamagedError("the metadata have a size that is not a list of whole numbers")
    return tuple(value)


def _value(
    name: Any, kind: Any, places: Mapping[Any, Mapping[Sizes | None, _Place]], files: _Files
) -> Any:
    here = places.get(name)
    if here is None:
        raise DamagedError(f"no shard holds {shown(name)}")
    if isinstance(kind, Inert) and kind.reference.name == "TensorStorageMetadata":
        return _tensor(kind, here, files)
    return files.tree(next(iter(here.values())))


def _tensor(kind: Inert, here: Mapping[Sizes | None, _Place], files: _Files) -> DistributedTensor:
    properties = _attribute(kind, "properties")
    state = properties.state if isinstance(properties, Inert) else None
    dtype = state[0] if isinstance(state, tuple) and state else _attribute(properties, "dtype")
    chunks = _attribute(kind, "chunks")
    if not isinstance(chunks, list):
        raise DamagedError("the metadata of a tensor list no shards")
    boxes = [(_sizes(_attribute(c, "offsets")), _sizes(_attribute(c, "sizes"))) for c in chunks]
    placed = tuple(
        _Chunk(offsets, sizes, here.get(offsets) or here[None]) for offsets, sizes in boxes
    )
    return DistributedTensor(files, _sizes(_attribute(kind, "size")), named_dtype(dtype), placed)


def _nested(values: Mapping[Any, Any], paths: Any) -> dict[Any, Any]:
    """Return the values in the dictionaries and lists that they were saved in."""
    tree: dict[Any, Any] = {}
    for name, value in values.items():
        path = paths.get(name) if isinstance(paths, dict) else None
        keys = [pickles.key_of(key) for key in path] if isinstance(path, tuple) and path else [name]
        node = tree
        for key in keys[:-1]:
            node = node.setdefault(key, {})
            if not isinstance(node, dict):
                raise DamagedError("the metadata put a value inside another")
        node[keys[-1]] = value
    return tree
