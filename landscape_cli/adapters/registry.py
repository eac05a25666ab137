"""Which adapters and measures are installed, and the one that a name stands for.

Built-ins are found as anybody's are, through the entry points of their distribution. Nothing is
imported until it is asked for by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from landscape_cli.adapters.contract import DATA_GROUP, MEASURE_GROUP, MODEL_GROUP
from landscape_cli.errors import AdapterError, LandscapeError, SpecError

OURS = "landscape-cli"
"""The distribution whose names nobody can take over."""


@dataclass(frozen=True)
class Plugin:
    """One entry point of one installed distribution.

    Attributes:
        group: the entry-point group.
        name: what it is asked for by.
        value: what is imported, ``module:attribute``.
        distribution: name of the distribution that brings it.
        version: version of the distribution.
        shadowed_by: the distribution that has the name instead; empty for the one in use.
        error: why it cannot be imported; empty if it can, or if nobody tried.
    """

    group: str
    name: str
    value: str
    distribution: str
    version: str
    shadowed_by: str = ""
    error: str = ""


@dataclass(frozen=True)
class Registry:
    """The plugins of one entry-point group, those that are shadowed included.

    Attributes:
        group: the entry-point group.
        kind: what a plugin of the group is called ("model adapter").
        example: how one is asked for, ``{}`` standing for the name.
        plugins: sorted by name, the one in use before those it shadows.
    """

    group: str
    kind: str
    example: str
    plugins: tuple[Plugin, ...]

    def names(self) -> list[str]:
        """Return the names that can be asked for."""
        return [plugin.name for plugin in self.plugins if not plugin.shadowed_by]

    def find(self, name: str) -> Plugin:
        """Return the plugin that has the name.

        Raises:
            SpecError: If there is none.
        """
        for plugin in self.plugins:
            if plugin.name == name and not plugin.shadowed_by:
                return plugin
        close = difflib.get_close_matches(name, self.names(), n=1)
        first = self.example.format(close[0]) if close else self.example.format("NAME")
        raise SpecError(
            f"no {self.kind} is named {name!r}",
            seen=", ".join(self.names()) or "none is installed",
            hint=f"{first}, or `landscape adapters`",
        )

    def load(self, name: str) -> Callable[..., Any]:
        """Import the plugin that has the name.

        Raises:
            SpecError: If there is none.
            AdapterError: If it cannot be imported, or cannot be called.
        """
        plugin = self.find(name)
        try:
            loaded = import_plugin(plugin)
        except (LandscapeError, KeyboardInterrupt):
            raise
        except BaseException as error:  # an import may raise anything, SystemExit included
            raise AdapterError(
                f"the {self.kind} {name!r} cannot be imported",
                seen=describe(error),
                hint=f"mend or reinstall {plugin.distribution} {plugin.version}",
            ) from error
        if not callable(loaded):
            raise AdapterError(
                f"the {self.kind} {name!r} cannot be called",
                seen=f"{plugin.value} is a {type(loaded).__name__}",
                hint=f"report it to the authors of {plugin.distribution}",
            )
        return loaded  # type: ignore[no-any-return]


def models() -> Registry:
    """Return the installed model adapters."""
    return _registry(MODEL_GROUP, "model adapter", "--model {}:TARGET")


def data() -> Registry:
    """Return the installed data adapters."""
    return _registry(DATA_GROUP, "data adapter", "--data {}:TARGET")


def measures() -> Registry:
    """Return the installed measures."""
    return _registry(MEASURE_GROUP, "measure", "--measure {}")


def import_plugin(plugin: Plugin) -> Any:
    """Import what an entry point names; whatever the import raises goes through."""
    return EntryPoint(plugin.name, plugin.value, plugin.group).load()


def describe(error: BaseException) -> str:
    """Return type and message of an error, on one line of bearable length."""
    if isinstance(error, LandscapeError):
        text = f"{error.what}: {error.seen}" if error.seen else error.what
    else:
        message = " ".join(str(error).split())
        text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"


def _registry(group: str, kind: str, example: str) -> Registry:
    found = {
        (entry.name, entry.value, *_origin(entry)): entry for entry in entry_points(group=group)
    }
    plugins = [
        Plugin(group, name, value, distribution, version)
        for name, value, distribution, version in found
    ]
    plugins.sort(key=lambda plugin: (plugin.name, plugin.distribution != OURS, plugin.distribution))
    return Registry(group, kind, example, tuple(_mark_shadowed(plugins)))


def _origin(entry: EntryPoint) -> tuple[str, str]:
    if entry.dist is None:
        return "(unknown)", ""
    return entry.dist.name, entry.dist.version


def _mark_shadowed(plugins: Iterable[Plugin]) -> Iterable[Plugin]:
    """Let the first plugin of a name have it."""
    holders: dict[str, str] = {}
    for plugin in plugins:
        holder = holders.setdefault(plugin.name, "")
        yield replace(plugin, shadowed_by=holder) if holder else plugin
        holders[plugin.name] = holder or plugin.distribution
