"""Options of the commands: declared once, as the fields of a dataclass, and read from files too."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer

OBJECTIVE = "What is measured"
PLACE = "Where it runs"
OUTPUT = "Output"

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no messages.")]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on standard output.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def option(*names: str, help: str, unless: str = "", **about: Any) -> Any:  # noqa: A002
    """Declare an option that is None, or empty, where it is not given; the help says what then."""
    text = f"{help} Default: {unless}." if unless else help
    return typer.Option(*names, help=text, show_default=False, **about)


def takes(options: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one option per field of a dataclass; it is called with an instance.

    The command has a parameter named ``options``; its other parameters stay what they are.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        fields = dataclasses.fields(options)
        hints = {
            **typing.get_type_hints(command, include_extras=True),
            **typing.get_type_hints(options, include_extras=True),
        }
        own = [p for p in inspect.signature(command).parameters.values() if p.name != "options"]
        declared = [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=_default_of(field)
            )
            for field in fields
        ]
        parameters = [
            item.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[item.name])
            for item in (*own, *declared)
        ]

        def call(**values: Any) -> None:
            given = {field.name: values.pop(field.name) for field in fields}
            command(options=options(**given), **values)

        call.__name__, call.__doc__ = command.__name__, command.__doc__
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {item.name: item.annotation for item in parameters}
        return call

    return decorate


def _default_of(field: dataclasses.Field[Any]) -> Any:
    missing = field.default is dataclasses.MISSING
    return inspect.Parameter.empty if missing else field.default
