"""Samples of shards as pairs of an input and a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from landscape_cli.errors import AdapterError
from landscape_webdataset.decoding import Pictures, decode
from landscape_webdataset.shards import Entry


@dataclass(frozen=True)
class Part:
    """Which member of a sample is the input or the target.

    Attributes:
        suffixes: what its name may end on; the first that a sample has is used.
        field: of a ``json`` member, dots leading into it.
    """

    suffixes: tuple[str, ...]
    field: str = ""

    def find(self, entry: Entry) -> str | None:
        """Return what the member's name ends on, None if the sample has no such member."""
        return next((suffix for suffix in self.suffixes if suffix in entry.members), None)


class ShardSamples(Dataset[tuple[Tensor, Tensor]]):
    """Pairs of an input and a target, read from their shard when they are asked for.

    Args:
        entries: the samples.
        parts: the input and the target of each.
        pictures: how pictures become tensors.

    Attributes:
        keys: names of the samples, in their order.
    """

    def __init__(
        self, entries: Sequence[Entry], parts: tuple[Part, Part], pictures: Pictures
    ) -> None:
        self._entries = entries
        self._parts = parts
        self._pictures = pictures
        self.keys = tuple(entry.key for entry in entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        entry = self._entries[index]
        inputs, target = (self._read(entry, part) for part in self._parts)
        return inputs, target

    def _read(self, entry: Entry, part: Part) -> Tensor:
        suffix = part.find(entry)
        if suffix is None:
            raise AdapterError(
                "a sample lacks a member",
                seen=f"{entry.key} has {', '.join(entry.members) or 'nothing'}",
                hint=f"one of {', '.join(part.suffixes)} is needed: x=… and y=… choose others",
            )
        member = entry.members[suffix]
        try:
            value = decode(suffix, member.read(), part.field, self._pictures)
        except (ValueError, OSError, SyntaxError, RecursionError, Warning) as error:
            bomb = isinstance(error, Image.DecompressionBombWarning)
            raise AdapterError(
                "a member of a sample cannot be read",
                seen=f"{entry.key}.{suffix} in {member.shard}: {str(error).splitlines()[0]}",
                hint="the picture is too large" if bomb else "x=… and y=… choose the members",
            ) from error
        return torch.as_tensor(value)
