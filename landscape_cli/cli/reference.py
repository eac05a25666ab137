"""The command reference of the docs, written from the program's own help."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from landscape_cli.cli.app import COMMANDS, app

HEADING = """# Commands

This page is written by `make docs` from the program's own help. Errors are three lines on standard
error: what was wrong, what was seen, what to try. Exit codes: 0 done, 1 a handled failure, 2 wrong
usage, 130 interrupted.
"""


def render_reference() -> str:
    """Return the reference of every command as Markdown."""
    group: Any = typer.main.get_command(app)
    sections = [HEADING]
    for name in COMMANDS:
        command = group.get_command(None, name)
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option"]
        names = " ".join(_placeholder(argument) for argument in arguments)
        usage = f"landscape {name} {names} [OPTIONS]".replace("  ", " ")
        sections.append(f"## {name}\n\n{command.help}\n\n```console\n$ {usage}\n```\n")
        if arguments:
            rows = [(f"`{_placeholder(item)}`", item.help or "") for item in arguments]
            sections.append(_table(("argument", "meaning"), rows))
        rows = [(_names(item), item.help or "") for item in options if item.name != "help"]
        sections.append(_table(("option", "meaning"), rows))
    return "\n".join(sections)


def _placeholder(argument: Any) -> str:
    name = str(argument.metavar or argument.name)
    return f"{name}…" if argument.nargs == -1 and not name.endswith("...") else name


def _names(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    metavar = "" if option.is_flag else f" `{option.metavar or 'VALUE'}`"
    return f"{names}{metavar}".replace("|", "\\|")


def _table(heading: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [f"| {heading[0]} | {heading[1]} |", "|---|---|"]
    lines += [f"| {name} | {meaning.replace('|', chr(92) + '|')} |" for name, meaning in rows]
    return "\n".join(lines) + "\n"


def main(path: str) -> None:
    """Write the reference to a file."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(render_reference(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
