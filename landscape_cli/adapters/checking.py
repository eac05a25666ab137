"""Which plugins can be imported: tried in another process, which they may end as they like."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import TextIO

from landscape_cli.adapters.registry import Plugin, describe, import_plugin

IMPORT_SECONDS = 60.0
"""How long one plugin may take to be imported before it is reported as broken."""

TOO_SLOW = 124
"""Exit status of the process where an import takes too long."""


def check(plugins: Iterable[Plugin], seconds: float = IMPORT_SECONDS) -> list[Plugin]:
    """Import every plugin in a process of its own making, and say which cannot be.

    A plugin that raises, exits, crashes the interpreter or never returns is reported with the
    reason, and the others are tried all the same. Nothing is imported into this process.

    Args:
        plugins: what to try.
        seconds: how long one import may take.

    Returns:
        The plugins in their order, those that are broken with their `error`.
    """
    remaining = list(plugins)
    checked: list[Plugin] = []
    while remaining:
        errors, stopped = _import_elsewhere(remaining, seconds)
        if stopped:
            errors.append(stopped)
        tried, remaining = remaining[: len(errors)], remaining[len(errors) :]
        checked += [
            replace(plugin, error=error) for plugin, error in zip(tried, errors, strict=True)
        ]
    return checked


def _import_elsewhere(plugins: list[Plugin], seconds: float) -> tuple[list[str], str]:
    """Return one answer per plugin that was tried, and what stopped the process, if anything."""
    named = [[plugin.group, plugin.name, plugin.value] for plugin in plugins]
    finished = subprocess.run(  # noqa: S603  this interpreter, this module
        [sys.executable, "-m", __name__],
        input=json.dumps({"seconds": seconds, "plugins": named}),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    errors = [json.loads(line) for line in finished.stdout.splitlines()]
    if len(errors) == len(plugins):
        return errors, ""
    if finished.returncode == TOO_SLOW:
        return errors, f"the import takes more than {seconds:g} seconds"
    return errors, f"the import ends the interpreter (exit status {finished.returncode})"


def answer() -> None:
    """Be the other process: read a request from standard input, answer on standard output.

    An answer is a line with a JSON string: empty, or why the plugin cannot be imported.
    """
    request = json.loads(sys.stdin.read())
    with _own_standard_output() as answers:
        for group, name, value in request["plugins"]:
            watchdog = threading.Timer(request["seconds"], os._exit, [TOO_SLOW])
            watchdog.daemon = True
            watchdog.start()
            error = _try(Plugin(group, name, value, "", ""))
            watchdog.cancel()
            answers.write(json.dumps(error) + "\n")
            answers.flush()
    os._exit(0)  # what plugins registered to happen at exit is not wanted


def _own_standard_output() -> TextIO:
    """Keep standard output for the answers, whatever an import prints."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _try(plugin: Plugin) -> str:
    try:
        loaded = import_plugin(plugin)
    except BaseException as error:  # noqa: BLE001  an import may raise anything at all
        return describe(error)
    return "" if callable(loaded) else f"{plugin.value} cannot be called"


if __name__ == "__main__":
    answer()
