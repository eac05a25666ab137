"""What lies where in tar files: samples are members that share a name up to its first dot."""

from __future__ import annotations

import glob
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from landscape_cli.errors import AdapterError

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_LONGEST_RANGE = 1_000_000


@dataclass(frozen=True)
class Member:
    """Bytes of a file inside a tar file."""

    shard: Path
    offset: int
    size: int

    def read(self) -> bytes:
        """Return the bytes; nothing is unpacked to the disk."""
        with self.shard.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


@dataclass(frozen=True)
class Entry:
    """One sample: its key and its members by what their names end on."""

    key: str
    members: dict[str, Member] = field(default_factory=dict)


def find_shards(target: str) -> list[Path]:
    """Return the shards of a folder, a pattern such as ``train-{000..009}.tar``, or a file.

    Raises:
        AdapterError: If there is none, or one is missing.
    """
    path = Path(target).expanduser()
    if path.is_dir():
        shards = sorted(path.glob("*.tar"))
    elif path.is_file():
        shards = [path]
    else:
        shards = [shard for text in _expand(str(path)) for shard in _match(text)]
    missing = [shard for shard in shards if not shard.is_file()]
    if missing or not shards:
        raise AdapterError(
            "there are no shards there",
            seen=missing[0] if missing else target,
            hint="a folder with .tar files, or a pattern such as train-{000..009}.tar",
        )
    return shards


def _match(pattern: str) -> list[Path]:
    """Return the files that a shell pattern names, or what it says as it stands."""
    found = sorted(glob.glob(pattern))  # noqa: PTH207  Path.glob takes no absolute patterns
    return [Path(name) for name in found or [pattern]]


def _expand(text: str) -> Iterator[str]:
    found = _RANGE.search(text)
    if found is None:
        yield text
        return
    low, high = found.groups()
    if not 0 <= int(high) - int(low) < _LONGEST_RANGE:
        raise AdapterError("the range of shards cannot be meant", seen=found[0], hint="{000..009}")
    for number in range(int(low), int(high) + 1):
        yield from _expand(f"{text[: found.start()]}{number:0{len(low)}d}{text[found.end() :]}")


def list_entries(shards: list[Path]) -> list[Entry]:
    """Return the samples of all shards in their order; only headers are read.

    Raises:
        AdapterError: If a shard is damaged or compressed.
    """
    entries: list[Entry] = []
    for shard in shards:
        present: dict[str, Entry] = {}
        for name, member in _members(shard):
            folder, _, base = name.rpartition("/")
            stem, _, suffix = base.partition(".")
            key = f"{folder}/{stem}" if folder else stem
            if key not in present:
                present[key] = Entry(key)
                entries.append(present[key])
            present[key].members[suffix.lower()] = member
    return entries


def _members(shard: Path) -> Iterator[tuple[str, Member]]:
    """Yield the regular files of a tar file, but for hidden ones; links lead nowhere."""
    try:
        with tarfile.open(shard, "r:") as archive:
            for info in archive:
                base = info.name.rpartition("/")[2]
                if info.isreg() and "." in base[1:] and not base.startswith("."):
                    yield info.name, Member(shard, info.offset_data, info.size)
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        raise AdapterError(
            "a shard cannot be read",
            seen=f"{shard}: {str(error).splitlines()[0]}",
            hint="an uncompressed tar file: samples of a compressed one cannot be picked",
        ) from error
