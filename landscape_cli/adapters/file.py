"""The adapter ``file``: the user's own code, ``FILE.py:FACTORY?key=value``."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import operator
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from landscape_cli.adapters.registry import describe
from landscape_cli.errors import AdapterError, LandscapeError

PREFIX = "landscape_user_"
"""What the module names of users' files begin with."""

_loaded: dict[Path, tuple[tuple[int, int], ModuleType]] = {}
_siblings: dict[Path, dict[str, ModuleType]] = {}


def build_model(target: str, **options: Any) -> Any:
    """Call a model factory, ``FILE.py:FACTORY``, with the options as keyword arguments."""
    return call(target, "model", options)


def build_data(target: str, **options: Any) -> Any:
    """Call a data factory, ``FILE.py:FACTORY``, with the options as keyword arguments."""
    return call(target, "data", options)


def call(address: str, what: str, options: dict[str, Any]) -> Any:
    """Return what ``FILE.py:FACTORY`` gives; `what` names it in errors ("model", "data")."""
    factory = load(address, what)
    with _beside(_split(address, what)[0].parent):
        return factory(**options)


def load(address: str, what: str) -> Callable[..., Any]:
    """Return the function that ``FILE.py:NAME`` names, without calling it.

    The file runs once, under a module name of its own, again only if it has changed. While it
    runs, its folder is the first that modules are looked for in; a module next to another file
    that happens to have the same name as one next to this file is another module.

    Args:
        address: path of the file, a colon, the name in it.
        what: what it makes, for errors ("model", "data", "loss").

    Raises:
        AdapterError: If there is no such file or function, or the file raises an error.
    """
    path, name = _split(address, what)
    module = _module(path, what)
    found = getattr(module, name, None)
    if callable(found):
        return found  # type: ignore[no-any-return]
    if hasattr(module, name):
        raise AdapterError(
            f"{name!r} in {path.name} cannot be called",
            seen=f"a {type(found).__name__}",
            hint=f"--{what} {path.name}:FUNCTION, a function that returns it",
        )
    names = [key for key, item in vars(module).items() if key[0] != "_" and callable(item)]
    own = [key for key in names if getattr(vars(module)[key], "__module__", "") == module.__name__]
    close = difflib.get_close_matches(name, own, n=1) or own[:1] or ["FUNCTION"]
    raise AdapterError(
        f"{path.name} has no function {name!r}",
        seen=", ".join(own) or "(no functions)",
        hint=f"--{what} {path}:{close[0]}",
    )


def home_of(module: str) -> tuple[str, str] | None:
    """Return where a module is that only a user's file makes known, None for all others.

    Args:
        module: its name.

    Returns:
        The path of the file, or the folder of the file next to which it lies and its name.
    """
    for path, (_, loaded) in _loaded.items():
        if loaded.__name__ == module:
            return str(path), ""
    for folder, modules in _siblings.items():
        if module in modules:
            return str(folder), module
    return None


def find(home: tuple[str, str], name: str) -> Any:
    """Return what has the dotted name in a module; `home` is what `home_of` said elsewhere."""
    path, module = Path(home[0]), home[1]
    if not module:
        return operator.attrgetter(name)(_module(path, "data"))
    with _beside(path):
        return operator.attrgetter(name)(importlib.import_module(module))


def _split(address: str, what: str) -> tuple[Path, str]:
    file, _, name = address.rpartition(":")
    if not file.endswith(".py") or not name:
        raise AdapterError(
            f"the {what} is not FILE.py:FUNCTION",
            seen=address,
            hint=f"--{what} my_code.py:make_{what}",
        )
    path = Path(file).expanduser().absolute()
    if not path.is_file():
        raise AdapterError(
            f"the file with the {what} does not exist",
            seen=str(path),
            hint=f"check the path in --{what}",
        )
    return path, name


def _module(path: Path, what: str) -> ModuleType:
    status = path.stat()
    signature = (status.st_mtime_ns, status.st_size)
    known = _loaded.get(path)
    if known is None or known[0] != signature:
        _loaded[path] = (signature, _execute(path, what))
    return _loaded[path][1]


def _execute(path: Path, what: str) -> ModuleType:
    name = PREFIX + hashlib.sha256(str(path).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AdapterError(f"the file with the {what} is not Python", seen=path, hint="FILE.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up by name
    try:
        with _beside(path.parent):
            spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt | LandscapeError):
            raise
        raise AdapterError(
            f"the file with the {what} raised an error while it was imported",
            seen=f"{describe(error)}{place(error, path)}",
            hint=f"python {path.name} shows it; --debug shows where",
        ) from error
    return module


def place(error: BaseException, path: Path) -> str:
    """Return ``, FILE.py line N``: the last line of the file that the error came through."""
    if isinstance(error, SyntaxError):
        return ""  # its message says so itself
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == path]
    return f", {path.name} line {lines[-1]}" if lines else ""


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Let imports find the modules in a folder first, and not those next to other files."""
    own = _siblings.setdefault(folder, {})
    others = {
        name: module
        for other, modules in _siblings.items()
        if other != folder
        for name, module in modules.items()
        if sys.modules.get(name) is module
    }
    for name in others:
        del sys.modules[name]
    sys.modules.update(own)
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        own.update(_newcomers(folder, before))
        sys.modules.update(others)


def _newcomers(folder: Path, before: set[str]) -> dict[str, ModuleType]:
    """Return the modules that were imported since, and only because the folder was looked in."""
    found = {}
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        origin = getattr(module, "__file__", None)
        if top in before or name.startswith(PREFIX) or not isinstance(origin, str):
            continue
        if Path(origin).is_relative_to(folder) and not _is_found_without(top):
            found[name] = module
    return found


def _is_found_without(name: str) -> bool:
    """Whether the module is there for everybody, on the path or in an installed package."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    return any(finder.find_spec(name, None) is not None for finder in finders)
