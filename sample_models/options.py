"""Options of a spec, bound to the keyword arguments of what they build, or refused by name."""

from __future__ import annotations

import inspect
import types
import typing
from functools import partial
from typing import Any, Literal

from landscape_cli.errors import AdapterError

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_PLAIN = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "True or False",
    types.NoneType: "None",
}


def accepted_options(build: Callable[..., Any], *, hidden: Iterable[str] = ()) -> dict[str, Any]:
    """Return the type of every named parameter of `build`.

    Those in `hidden`, and those that a `functools.partial` has fixed, are left out.
    """
    left_out = {*hidden, *(build.keywords if isinstance(build, partial) else ())}
    source = build.func if isinstance(build, partial) else build
    hints = typing.get_type_hints(vars(source)["__init__"] if isinstance(source, type) else source)
    return {name: hints[name] for name in _named_parameters(build) if name not in left_out}


def _named_parameters(build: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(build).parameters.items()
    return {name: parameter for name, parameter in parameters if parameter.kind in kinds}


def require_options(build: Callable[..., Any], options: Iterable[str], what: str) -> None:
    """Refuse to build without an option that has no default.

    Raises:
        AdapterError: If one is missing.
    """
    given = set(options)
    for name, parameter in _named_parameters(build).items():
        if parameter.default is inspect.Parameter.empty and name not in given:
            raise AdapterError(
                f"{what} needs the option {name!r}",
                seen=", ".join(sorted(given)) or "no options",
                hint=f"{name}={name.upper()}",
            )


def bind(options: Mapping[str, Any], accepted: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the options in the types that are asked for.

    Args:
        options: values by name, as a spec's literals: ``100,100`` is a tuple, ``8`` an int.
        accepted: type by name; int, float, str, bool, Literal, ``tuple[X, ...]`` and unions.
        what: what is built, for the error ("the sample model 'vgg'").

    Raises:
        AdapterError: If a name is unknown or a value cannot be meant.
    """
    for name in options:
        if name not in accepted:
            raise AdapterError(
                f"{what} has no option {name!r}",
                seen=f"{name}={options[name]}",
                hint=", ".join(accepted) or "it takes no options",
            )
    return {name: _coerced(name, value, accepted[name], what) for name, value in options.items()}


def _coerced(name: str, value: Any, wanted: Any, what: str) -> Any:
    for kind in _alternatives(wanted):
        fits, result = _convert(value, kind)
        if fits:
            return result
    raise AdapterError(
        f"the option {name!r} of {what} cannot be {value!r}",
        seen=f"{name}={value}",
        hint=f"give {_described(wanted)}",
    )


def _alternatives(wanted: Any) -> tuple[Any, ...]:
    union = typing.get_origin(wanted) in (typing.Union, types.UnionType)
    return typing.get_args(wanted) if union else (wanted,)


def _convert(value: Any, kind: Any) -> tuple[bool, Any]:
    """Return whether `value` can be meant as `kind`, and the value as that kind."""
    origin = typing.get_origin(kind)
    if origin is Literal:
        spelled = value.replace("_", "-") if isinstance(value, str) else value
        return spelled in typing.get_args(kind), spelled
    if origin is tuple:
        return _convert_items(value, typing.get_args(kind)[0])
    if kind is bool:
        return isinstance(value, bool) or value in ("true", "false"), value in (True, "true")
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool), value
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool)), value


def _convert_items(value: Any, kind: Any) -> tuple[bool, Any]:
    if isinstance(value, str):
        value = [item for item in value.split(",") if item]
        value = [int(item) if item.isdecimal() else item for item in value]
    items = value if isinstance(value, tuple | list) else (value,)
    converted = [_converted_item(item, kind) for item in items]
    return all(fits for fits, _ in converted), tuple(item for _, item in converted)


def _converted_item(item: Any, kind: Any) -> tuple[bool, Any]:
    results = [_convert(item, one) for one in _alternatives(kind)]
    return next((result for result in results if result[0]), (False, item))


def _described(wanted: Any) -> str:
    return " or ".join(_described_one(kind) for kind in _alternatives(wanted))


def _described_one(kind: Any) -> str:
    origin = typing.get_origin(kind)
    if origin is Literal:
        return ", ".join(str(value) for value in typing.get_args(kind))
    if origin is tuple:
        return f"{_described(typing.get_args(kind)[0])}, or several with commas between"
    return _PLAIN[kind]


def require_at_least(low: float, **values: float) -> None:
    """Refuse the first value that is below `low`.

    Raises:
        AdapterError: If one is.
    """
    for name, value in values.items():
        if not value >= low:
            raise AdapterError(
                f"the option {name!r} is too small",
                seen=f"{name}={value}",
                hint=f"give {low:g} or more",
            )


def require_seed(seed: int) -> None:
    """Refuse a seed that torch's generators do not take.

    Raises:
        AdapterError: If it is below 0 or does not fit into 63 bits.
    """
    require_at_least(0, seed=seed)
    if seed >= 2**63:
        raise AdapterError("the option 'seed' is too large", seen=f"seed={seed}", hint="seed=0")
