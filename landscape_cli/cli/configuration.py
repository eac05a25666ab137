"""Options from a file, under those of the command line."""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path
from typing import Any, TypeVar

from landscape_cli.errors import SpecError

Options = TypeVar("Options")

SYNONYMS = {
    "checkpoint": "checkpoints",
    "direction": "directions",
    "measure": "measures",
    "o": "output",
    "out": "output",
}
"""Names in a file that are spelled as on the command line."""

FLAGS = ("resume", "overwrite", "json", "quiet", "debug")
TEXTS = ("output",)
"""Options that no spec checks."""


def merge_config(options: Options, config: str | None) -> Options:
    """Return the options with those from a TOML file filled in where they were not given.

    Args:
        options: an instance of a dataclass in which None, or empty, is what was not given.
        config: path of the file; None changes nothing.

    Raises:
        SpecError: If the file cannot be read, or holds what is not an option.
    """
    if config is None:
        return options
    from landscape_cli.specs import read_config

    names = {field.name for field in dataclasses.fields(options)} - {"config"}  # type: ignore[arg-type]
    found = {_known(name, names): value for name, value in read_config(Path(config)).items()}
    for name, value in found.items():
        _check_kind(name, value)
    unset = {name: value for name, value in found.items() if is_unset(getattr(options, name))}
    return dataclasses.replace(options, **unset)  # type: ignore[type-var]


def is_unset(value: Any) -> bool:
    """Whether an option was not given."""
    return value is None or (isinstance(value, list | tuple) and not value)


def parse_chunk(value: Any) -> int | None:
    """Read ``N`` or ``auto``, which is None.

    Raises:
        SpecError: If it is neither.
    """
    text = str(value)
    if text == "auto":
        return None
    if isinstance(value, bool) or not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise SpecError("--chunk is out of range", seen=text, hint="a whole number from 1, or auto")
    return int(text)


def _known(name: str, names: set[str]) -> str:
    known = SYNONYMS.get(name, name)
    if known in names:
        return known
    close = difflib.get_close_matches(name, names, n=1)
    raise SpecError(
        f"the config file has an unknown option {name!r}",
        seen=", ".join(sorted(names)),
        hint=f"{close[0]} = …" if close else "one of these",
    )


def _check_kind(name: str, value: Any) -> None:
    if isinstance(value, str) and "\0" in value:
        raise SpecError(
            f"the option {name!r} in the config file has a NUL in it",
            seen=repr(value),
            hint="take it out",
        )
    wanted = bool if name in FLAGS else str if name in TEXTS else object
    if not isinstance(value, wanted):
        raise SpecError(
            f"the option {name!r} in the config file has the wrong type",
            seen=repr(value),
            hint=f"{name} = true" if wanted is bool else f'{name} = "run.h5"',
        )
