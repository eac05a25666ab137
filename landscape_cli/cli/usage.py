"""Every other error, in the form of our own: what was wrong, what was seen, what to try."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from landscape_cli.errors import LandscapeError, SpecError

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
    command = error.ctx.command_path if error.ctx is not None else "landscape"
    more = f"{command} --help"
    option = getattr(error, "option_name", "")
    parameter = getattr(error, "param", None)
    kind = type(error).__name__
    if kind == "NoSuchOption":
        close = sorted(error.possibilities or ())
        hint = f"{', '.join(close)}, or {more}" if close else more
        return SpecError(f"there is no option {option}", seen=shlex.join(given), hint=hint)
    if kind == "MissingParameter" and parameter is not None:
        seen = shlex.join(given)
        return SpecError(f"{_parameter_name(parameter)} is missing", seen=seen, hint=more)
    if kind == "BadParameter" and parameter is not None:
        name = _parameter_name(parameter)
        return SpecError(f"{name} has no such value", seen=error.message.rstrip("."), hint=more)
    if kind == "BadOptionUsage":
        return SpecError(error.message.rstrip("."), seen=shlex.join(given), hint=more)
    what = error.message.rstrip(".")
    return SpecError(what[:1].lower() + what[1:], seen=shlex.join(given), hint=more)


def _parameter_name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name).upper()
    return str(max(parameter.opts, key=len))
