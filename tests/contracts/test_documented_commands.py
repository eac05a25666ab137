"""What README and docs tell people to type exists, and the reference is the program's own help."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import landscape_cli
from landscape_cli.cli.app import COMMANDS, app
from landscape_cli.cli.reference import render_reference

ROOT = Path(landscape_cli.__file__).parent.parent
PAGES = [
    *ROOT.glob("*.md"),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "plugins").glob("*/README.md")),
]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELLS = ("", "console", "sh", "bash", "shell", "text")


def typed_commands(page: Path) -> Iterator[str]:
    """Yield every `landscape …` and `make …` line in the code blocks of a page."""
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language not in SHELLS:
            continue
        for line in block.replace("\\\n", " ").splitlines():
            text = line.strip().removeprefix("$ ").strip()
            if text.startswith(("landscape ", "make ")):
                yield text


def group() -> Any:
    return typer.main.get_command(app)


DOCUMENTED = [(page, text) for page in PAGES for text in typed_commands(page)]


@pytest.mark.parametrize(
    ("page", "text"),
    [(page, text) for page, text in DOCUMENTED if text.startswith("landscape ")],
    ids=[
        f"{page.relative_to(ROOT)}: {text[:50]}"
        for page, text in DOCUMENTED
        if text.startswith("landscape ")
    ],
)
def test_documented_commands_and_options_exist(page: Path, text: str) -> None:
    words = [word for word in shlex.split(text, comments=True)[1:] if word not in ("|", ">")]
    first = next((word for word in words if not word.startswith("-")), None)
    if first is None:
        return
    assert first in COMMANDS, f"{page.name} says: {text}"
    command = group().get_command(None, first)
    known = {name for item in command.params for name in (*item.opts, *item.secondary_opts)}
    known |= {"--help", "-h", "--debug"}
    given = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    assert given <= known, f"{page.name} says: {text}"


def test_documented_targets_of_make_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    for page, text in DOCUMENTED:
        if text.startswith("make "):
            words = shlex.split(text, comments=True)[1:]
            asked = {word for word in words if "=" not in word and not word.startswith("-")}
            assert asked <= targets, f"{page.name} says: {text}"


def test_every_command_has_a_help_for_itself_and_for_all_its_options() -> None:
    for name in COMMANDS:
        command = group().get_command(None, name)
        assert command.help, name
        for item in command.params:
            assert getattr(item, "help", None), f"{name}: {item.name}"


def test_every_command_takes_debug() -> None:
    for name in COMMANDS:
        command = group().get_command(None, name)
        assert any("--debug" in item.opts for item in command.params), name


def test_the_reference_is_written_from_the_program() -> None:
    page = ROOT / "docs" / "reference" / "commands.md"
    assert page.read_text(encoding="utf-8") == render_reference(), "run `make docs`"
