"""The command ``landscape``: which commands there are, and the one place where errors end."""

from __future__ import annotations

import difflib
import importlib
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from landscape_cli import __version__
from landscape_cli.cli import usage
from landscape_cli.errors import LandscapeError, SpecError

COMMANDS = (
    "probe",
    "compare",
    "plot",
    "show",
    "inspect",
    "train",
    "reproduce",
    "adapters",
    "verify",
    "doctor",
    "demo",
)
"""Every command: a module of this package, with a function of the same name."""


@dataclass
class Session:
    """What one call of the program knows: `ctx.obj` of every command."""

    debug: bool = False


class Commands(TyperGroup):
    """The group of all commands, each imported when it is used, and the boundary for errors."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002
        """Return the names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]  # noqa: ARG002
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            module = importlib.import_module(f"landscape_cli.cli.{cmd_name}")
            single = typer.Typer(add_completion=False, rich_markup_mode="rich")
            single.command(cmd_name)(getattr(module, cmd_name))
            self.commands[cmd_name] = typer.main.get_command(single)
        return self.commands[cmd_name]

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Any:  # type: ignore[override]
        """Find the command that the first argument names."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            raise SpecError(
                f"there is no command {args[0]!r}",
                seen=", ".join(COMMANDS),
                hint=f"landscape {close[0]}" if close else "landscape --help",
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command; an interruption that it does not explain itself is explained here."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise usage.InterruptionError() from None

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, **extra: Any
    ) -> NoReturn:
        """Run the program and end the process, whatever happens."""
        extra["prog_name"] = usage.PROGRAM
        given = list(sys.argv[1:] if args is None else args)
        session = Session(debug="--debug" in given)
        extra.update(standalone_mode=False, obj=session)
        try:
            status = super().main(given or ["--help"], **extra)
        except Exception as error:  # noqa: BLE001  the boundary: nothing goes further
            status = _report(error, given, session)
        sys.exit(status if isinstance(status, int) else 0)


def _report(error: Exception, given: list[str], session: Session) -> int:
    """Say on standard error what was wrong, what was seen and what to try."""
    if session.debug:
        traceback.print_exception(error, file=sys.stderr)
    told = error if isinstance(error, LandscapeError) else usage.translate(error, given)
    for label, text in told.lines():
        prefix = f"{label}: " if label == "error" else f"  {label + ':':<6} "
        print(prefix + usage.one_line(text), file=sys.stderr)
    return told.exit_code


app = typer.Typer(
    cls=Commands,
    name="landscape",
    help="Probe the loss landscape around any PyTorch checkpoint.",
    epilog="Start with: landscape demo, or landscape inspect CHECKPOINT",
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  Typer calls it so
    if wanted:
        print(f"landscape {__version__}")
        raise typer.Exit


@app.callback()
def landscape(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    debug: Annotated[  # the boundary looks for it before anything is parsed
        bool, typer.Option("--debug", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Probe the loss landscape around any PyTorch checkpoint."""


def main() -> None:
    """Run the program."""
    app()
