"""The user's class, ``FILE.py:CLASS`` or ``package.module:CLASS``, and the options it takes."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from landscape_cli.adapters import file
from landscape_cli.adapters.registry import describe
from landscape_cli.errors import AdapterError, LandscapeError


def load(target: str, what: str) -> type[Any]:
    """Return the class that a target names; `what` it makes is for errors ("model", "data").

    Raises:
        AdapterError: If there is no such file, module or class.
    """
    place, separator, name = target.rpartition(":")
    if not separator or not place or not name.isidentifier():
        raise AdapterError(
            "the target names no file and class",
            seen=target,
            hint=f"--{what} lightning:FILE.py:CLASS or lightning:package.module:CLASS",
        )
    found = file.load(target, what) if place.endswith(".py") else _imported(place, name, what)
    if inspect.isclass(found):
        return found
    raise AdapterError(
        f"{name} is not a class",
        seen=f"a {type(found).__name__} in {place}",
        hint=f"--{what} {place}:{name} calls a function, without lightning:",
    )


def _imported(place: str, name: str, what: str) -> Any:
    try:
        return getattr(importlib.import_module(place), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise AdapterError(
            f"the class of the {what} cannot be imported",
            seen=describe(error),
            hint="lightning:FILE.py:CLASS, or lightning:package.module:CLASS of an installed one",
        ) from error


def create(kind: type[Any], options: Mapping[str, Any]) -> Any:
    """Return an instance, made with `options` as keyword arguments.

    Raises:
        AdapterError: If the class does not take them, needs more, or raises.
    """
    try:
        inspect.signature(kind).bind(**options)
    except TypeError as error:
        raise AdapterError(
            f"{kind.__name__} does not take these options",
            seen=f"{error}: {_told(options)}",
            hint=f"it takes {', '.join(accepted(kind) or ()) or 'none'}; checkpoint=FILE has some",
        ) from None
    try:
        return kind(**options)
    except LandscapeError:
        raise
    except (Exception, SystemExit) as error:
        raise AdapterError(
            f"{kind.__name__} raised an error while it was made",
            seen=describe(error),
            hint=f"check the options: {_told(options)}",
        ) from error


def accepted(kind: type[Any]) -> list[str] | None:
    """Return the keyword arguments that a class takes; None where it takes any."""
    parameters = inspect.signature(kind).parameters.values()
    if any(item.kind is item.VAR_KEYWORD for item in parameters):
        return None
    return [
        item.name
        for item in parameters
        if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
    ]


def _told(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items()) or "(none)"
