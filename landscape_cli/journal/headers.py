"""Whether a run that is to go on is the one that was begun."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from landscape_cli.errors import StoreError
from landscape_cli.plan import device_kinds
from landscape_cli.specs import PLACEMENT

FREE = frozenset({"created", "command", *(f"settings.{name}" for name in PLACEMENT)})
"""What may change on a resume: when and where a run is measured, not what."""
DEVICE = "provenance.device"
"""What may change as far as it goes on with a kind of device that the run was begun on."""

_SHOWN = 3
_ABSENT = object()


def check_same(recorded: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Check that two headers plan the same run.

    Raises:
        StoreError: If they do not; it names the first differences.
    """
    differences = list(find_differences(recorded, json.loads(json.dumps(now))))
    if not differences:
        return
    more = len(differences) - _SHOWN
    rest = f"; and {more} more" if more > 0 else ""
    raise StoreError(
        "the run in the journal was begun with other settings, checkpoints or data",
        seen="; ".join(differences[:_SHOWN]) + rest,
        hint="give what was recorded, or --overwrite to start anew",
    )


def find_differences(recorded: Any, now: Any, where: str = "") -> Iterator[str]:
    """Yield one line for every value of two JSON documents that differs, by its dotted path."""
    if where in FREE or (where == DEVICE and _is_same_kind(recorded, now)):
        return
    if isinstance(recorded, dict) and isinstance(now, dict):
        for name in dict.fromkeys([*recorded, *now]):
            path = f"{where}.{name}" if where else name
            yield from find_differences(recorded.get(name, _ABSENT), now.get(name, _ABSENT), path)
    elif isinstance(recorded, list) and isinstance(now, list):
        if len(recorded) != len(now):
            yield f"{where} had {len(recorded)} entries, has {len(now)}"
            return
        for index, (old, new) in enumerate(zip(recorded, now, strict=True)):
            yield from find_differences(old, new, f"{where}[{index}]")
    elif _text(recorded) != _text(now):
        yield f"{where} was {_text(recorded):.60}, is {_text(now):.60}"


def _is_same_kind(recorded: Any, now: Any) -> bool:
    return device_kinds(str(now)) <= device_kinds(str(recorded))


def _text(value: Any) -> str:
    return "absent" if value is _ABSENT else json.dumps(value, sort_keys=True)
