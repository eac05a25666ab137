"""Every other error, in the form of our own: what was wrong, what was seen, what to try."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from landscape_cli.errors import LandscapeError, SpecError

PROGRAM = "landscape"

LONGEST_LINE = 400
"""Characters of an error line that are shown."""

USAGE_ERROR = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
"""What the parser of the command line raises; where it lives depends on Typer's version."""


class InterruptionError(LandscapeError):
    """The user stopped the program."""

    exit_code = 130

    def __init__(self, *, seen: object = "", hint: str = "") -> None:
        super().__init__("interrupted", seen=seen, hint=hint)


class UnfinishedError(LandscapeError):
    """Something was measured and written, but not all that was asked for."""


def translate(error: Exception, given: Sequence[str]) -> LandscapeError:
    """Return an error of ours for any other; `given` are the arguments of the program."""
    if isinstance(error, USAGE_ERROR):
        return _wrong_usage(error, given)
    if isinstance(error, typer.Abort):
        return InterruptionError()
    if isinstance(error, MemoryError):
        return LandscapeError(
            "there is not enough memory",
            seen=str(error) or shlex.join(given),
            hint="a smaller --batch-size or --chunk, or --device",
        )
    if isinstance(error, OSError) and error.strerror:
        return LandscapeError(
            "the system refused to read or write",
            seen=f"{error.filename or ''}: {error.strerror}".removeprefix(": "),
            hint="check the path, its permissions and the space left",
        )
    return LandscapeError(
        "something went wrong that should not have: this is a bug",
        seen=f"{type(error).__name__}: {error}{_place(error)}",
        hint="--debug shows the traceback; please report it",
    )


def one_line(text: str) -> str:
    """Return a text on one line of bearable length, control characters made visible."""
    line = " ".join(text.split())
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
    return shown if len(shown) <= LONGEST_LINE else shown[: LONGEST_LINE - 1] + "…"


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename.rsplit('/')[-1]} line {frames[-1].lineno})" if frames else ""


def _wrong_usage(error: Any, given: Sequence[str]) -> SpecError:
    kind, parameter = type(error).__name__, getattr(error, "param", None)
    more = f"{_command(error, given)} --help"
    message = error.message.rstrip(".")
    if kind == "NoSuchOption":
        close = ", ".join(sorted(error.possibilities or ()))
        hint = f"{close}, or {more}" if close else more
        return SpecError(f"there is no option {error.option_name}", seen=_joined(given), hint=hint)
    if kind == "MissingParameter" and parameter is not None:
        return SpecError(f"{_name_of(parameter)} is missing", seen=_joined(given), hint=more)
    if kind == "BadParameter" and parameter is not None:
        return SpecError(
            f"{_name_of(parameter)} has no such value",
            seen=_value_of(parameter, given) or message,
            hint=f"{_lowered(message)}; {more}",
        )
    return SpecError(_lowered(message), seen=_joined(given), hint=more)


def _command(error: Any, given: Sequence[str]) -> str:
    """Return the command that was meant, as far as the parser knew."""
    if error.ctx is not None and error.ctx.command_path != PROGRAM:
        return str(error.ctx.command_path)
    named = next((item for item in given if not item.startswith("-")), "")
    return f"{PROGRAM} {named}".rstrip()


def _value_of(parameter: Any, given: Sequence[str]) -> str:
    """Return the last value that was given to an option, empty if it cannot be told."""
    for index in range(len(given) - 1, -1, -1):
        name, separator, value = given[index].partition("=")
        if name in parameter.opts:
            return value if separator else next(iter(given[index + 1 :]), "")
    return ""


def _name_of(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name).rstrip(".")
    return str(max(parameter.opts, key=len))


def _joined(given: Sequence[str]) -> str:
    return shlex.join(given) or "(nothing)"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
