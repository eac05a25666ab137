"""``landscape adapters``: which plugins are installed, and which of them are broken."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from landscape_cli.cli import output
from landscape_cli.cli.options import Debug, Json

if TYPE_CHECKING:
    from landscape_cli.adapters.registry import Plugin

BASIC = ("loss_range", "gradient_predictiveness", "effective_smoothness")


def adapters(
    *,
    check: Annotated[
        bool,
        typer.Option("--check/--no-check", help="Try to import every one, in another process."),
    ] = True,
    json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """List the installed model, data and measure plugins; broken ones with the reason."""
    from landscape_cli.adapters import checking, registry

    kinds = {"model": registry.models(), "data": registry.data(), "measure": registry.measures()}
    kind_of = {found.group: kind for kind, found in kinds.items()}
    plugins = [plugin for found in kinds.values() for plugin in found.plugins]
    if check:
        output.say(f"importing {len(plugins)} plugins in another process", quiet=json)
    checked = checking.check(plugins) if check else plugins
    if json:
        output.write_json([_described(plugin, kind_of[plugin.group]) for plugin in checked])
        return
    rows = [
        (
            kind_of[plugin.group],
            plugin.name,
            plugin.distribution,
            plugin.version,
            _state(plugin, fine="ok" if check else "not tried"),
        )
        for plugin in checked
    ]
    rows += [("measure", name, "landscape-cli", "", "in every probe") for name in BASIC]
    output.write_table(("kind", "name", "from", "version", "state"), rows, left=5)
    for plugin in checked:
        if plugin.error:
            output.write(f"broken: {kind_of[plugin.group]} {plugin.name}: {plugin.error}")


def _described(plugin: Plugin, kind: str) -> dict[str, Any]:
    return {"kind": kind, **asdict(plugin), "usable": not (plugin.error or plugin.shadowed_by)}


def _state(plugin: Plugin, *, fine: str) -> str:
    if plugin.shadowed_by:
        return f"not used: {plugin.shadowed_by} has the name"
    return "broken, see below" if plugin.error else fine
