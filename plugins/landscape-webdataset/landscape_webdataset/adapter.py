"""The data adapter ``webdataset``: ``--data 'webdataset:FOLDER?x=jpg&y=cls'``."""

from __future__ import annotations

from typing import Any

from landscape_cli.errors import AdapterError
from landscape_webdataset.dataset import Part, ShardSamples
from landscape_webdataset.decoding import ARRAYS, KNOWN, NUMBERS, PICTURES, Pictures
from landscape_webdataset.shards import Entry, find_shards, list_entries

INPUTS = (*PICTURES, *ARRAYS)
TARGETS = NUMBERS


def open_shards(
    target: str,
    *,
    x: str | None = None,
    y: str | None = None,
    resize: int | None = None,
    mean: Any = None,
    std: Any = None,
    grey: bool = False,
) -> ShardSamples:
    """Open tar files of samples as pairs of an input and a target.

    The headers of the shards are read once, a sample's bytes when it is asked for. Samples are
    members that share a name up to the first dot of its last part.

    Args:
        target: a folder with ``.tar`` files, a pattern such as ``train-{000..009}.tar``, or a
            file; not compressed.
        x: what the name of the input ends on: ``jpg``, ``png``, ``npy``, ``depth.npy``, or
            ``json:FIELD``; the first picture or array if it is left out.
        y: the same for the target: ``cls``, ``npy``, ``json:FIELD``; ``cls`` if it is left out.
        resize: length of a picture's shorter side, of which the central square is kept.
        mean: subtracted from pixels between 0 and 1, a number or one per channel.
        std: divided by, the same.
        grey: whether pictures have one channel instead of three.

    Raises:
        AdapterError: If there is no such shard, a shard is damaged, or a value cannot be meant.
    """
    parts = (_part("x", x, INPUTS), _part("y", y, TARGETS))
    pictures = _pictures(resize, mean, std, grey)
    entries = [entry for entry in list_entries(find_shards(target)) if _has_any(entry)]
    if not entries:
        raise AdapterError(
            "the shards hold no samples",
            seen=target,
            hint="members such as 0001.jpg and 0001.cls: " + ", ".join(KNOWN),
        )
    return ShardSamples(entries, parts, pictures)


def _has_any(entry: Entry) -> bool:
    return any(suffix.rpartition(".")[2] in KNOWN for suffix in entry.members)


def _part(name: str, asked: str | None, usual: tuple[str, ...]) -> Part:
    if asked is None:
        return Part(usual)
    suffix, _, field = str(asked).partition(":")
    if suffix.rpartition(".")[2] not in KNOWN:
        raise AdapterError(
            f"the option {name!r} cannot be {asked!r}",
            seen=f"{name}={asked}",
            hint=f"{', '.join(KNOWN)}; pickles are never read",
        )
    return Part((suffix.lower(),), field)


def _pictures(resize: Any, mean: Any, std: Any, grey: Any) -> Pictures:
    if resize is not None and not (type(resize) is int and resize > 0):
        raise _refusal("resize", resize, "give the side in pixels")
    if type(grey) is not bool:
        raise _refusal("grey", grey, "True or False")
    numbers = {name: _numbers(name, value) for name, value in (("mean", mean), ("std", std))}
    given = {name: value for name, value in numbers.items() if value}
    return Pictures(resize=resize, grey=grey, **given)


def _numbers(name: str, value: Any) -> tuple[float, ...]:
    if value is None:
        return ()
    numbers = value if isinstance(value, tuple | list) else (value,)
    if not numbers or not all(type(number) in (int, float) for number in numbers):
        raise _refusal(name, value, "give a number, or one per channel: (0.5,0.5,0.5)")
    if name == "std" and not all(number > 0 for number in numbers):
        raise _refusal(name, value, "give positive numbers")
    return tuple(map(float, numbers))


def _refusal(name: str, value: object, hint: str) -> AdapterError:
    return AdapterError(
        f"the option {name!r} cannot be {value!r}", seen=f"{name}={value}", hint=hint
    )
