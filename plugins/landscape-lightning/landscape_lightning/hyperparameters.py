"""The hyper-parameters that a Lightning checkpoint recorded, read without executing it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from landscape_cli.checkpoints.damage import DAMAGE
from landscape_cli.checkpoints.mapped import StoredTensor
from landscape_cli.checkpoints.pickles import Inert
from landscape_cli.checkpoints.torch_file import read_tree
from landscape_cli.errors import AdapterError
from landscape_lightning.classes import accepted

NAMES = {
    "hyper_parameters": "hparams_name",
    "datamodule_hyper_parameters": "datamodule_hparams_name",
}
"""Keys of a checkpoint with hyper-parameters, and the key that says which argument takes them."""

PATHS = ("Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath")


def read(path: str, key: str = "hyper_parameters") -> tuple[dict[str, Any], str]:
    """Return the recorded hyper-parameters, and the one argument that takes them all, if any.

    Plain values, paths, namespaces and tensors are rebuilt. A value of any other class is left
    out: making it would mean running code that the checkpoint names.

    Args:
        path: of a ``.ckpt`` file.
        key: ``hyper_parameters`` or ``datamodule_hyper_parameters``.

    Raises:
        AdapterError: If the file cannot be read, or recorded none.
    """
    file = Path(path).expanduser()
    try:
        tree = read_tree(file)
    except (OSError, *DAMAGE) as error:
        raise AdapterError(
            "the checkpoint with the hyper-parameters cannot be read",
            seen=f"{file}: {error}",
            hint="checkpoint=FILE.ckpt, one that Lightning saved",
        ) from error
    found = _entries(tree.get(key)) if isinstance(tree, Mapping) else None
    if found is None:
        raise AdapterError(
            "the checkpoint recorded no hyper-parameters",
            seen=str(file),
            hint="self.save_hyperparameters() records them; or give them as options",
        )
    named = {name: _plain(value) for name, value in found.items() if isinstance(name, str)}
    kept = {name: value for name, value in named.items() if value is not _UNKNOWN}
    argument = tree.get(NAMES[key], "kwargs") if isinstance(tree, Mapping) else "kwargs"
    return kept, argument if isinstance(argument, str) and argument != "kwargs" else ""


class Attributes(dict[str, Any]):
    """Hyper-parameters that were given as one argument: items that are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def merge(
    kind: type[Any],
    checkpoint: str | None,
    options: Mapping[str, Any],
    *,
    key: str = "hyper_parameters",
) -> dict[str, Any]:
    """Return the arguments of a class: what the checkpoint recorded, then what options say.

    Recorded values that the class does not take are left out, as Lightning does.
    """
    if checkpoint is None:
        return dict(options)
    recorded, argument = read(checkpoint, key)
    names = accepted(kind)
    if argument and (names is None or argument in names):
        own = {name: value for name, value in options.items() if names and name in names}
        rest = {name: value for name, value in options.items() if name not in own}
        return {argument: Attributes({**recorded, **rest}), **own}
    taken = {name: value for name, value in recorded.items() if names is None or name in names}
    return {**taken, **options}


_UNKNOWN = object()


def _entries(value: Any) -> Mapping[Any, Any] | None:
    """Return the items of a mapping of any class, or of a namespace."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, Inert):
        return value.entries or value.attributes or _entries(value.state)
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, Inert):
        return _rebuilt(value)
    if isinstance(value, StoredTensor):
        return value.load()
    if isinstance(value, Mapping):
        return _all(dict, value, [_plain(item) for item in value.values()])
    if isinstance(value, list | tuple | set | frozenset):
        items = [_plain(item) for item in value]
        return _UNKNOWN if any(item is _UNKNOWN for item in items) else type(value)(items)
    known = value is None or isinstance(value, str | bytes | bool | int | float | complex)
    return value if known else _UNKNOWN


def _all(kind: Any, names: Any, values: list[Any]) -> Any:
    if any(value is _UNKNOWN for value in values):
        return _UNKNOWN
    return kind(zip(names, values, strict=True))


def _rebuilt(value: Inert) -> Any:
    reference = value.reference
    if reference.module.partition(".")[0] == "pathlib" and reference.name in PATHS:
        parts = [part for part in value.arguments if isinstance(part, str)]
        return Path(*parts)
    if str(reference) in ("argparse.Namespace", "types.SimpleNamespace"):
        found = _plain(_entries(value) or {})
        return _UNKNOWN if found is _UNKNOWN else Namespace(**found)
    return _UNKNOWN
