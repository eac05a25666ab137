"""From a spec to a model or to data: find the adapter, call it, and see what it returned."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from landscape_cli.adapters import file, registry
from landscape_cli.adapters.registry import Registry, describe
from landscape_cli.errors import AdapterError, LandscapeError
from landscape_cli.specs import ComponentSpec

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import Dataset


def build_model(spec: str | ComponentSpec) -> nn.Module:
    """Build the model that a spec stands for.

    Args:
        spec: ``ADAPTER:TARGET?key=value`` or ``FILE.py:FACTORY?key=value``.

    Returns:
        The module, as the adapter gave it.

    Raises:
        SpecError: If the spec is malformed or no adapter has its name.
        AdapterError: If the adapter does not take the options, raises, or returns no module.

    Example:
        >>> build_model("sample:mlp?in_features=4&hidden=8&classes=2&seed=0").__class__.__name__
        'MLP'
    """
    from torch import nn

    parsed = _parse(spec, "model")
    built = _call(parsed, registry.models(), "model")
    if isinstance(built, nn.Module):
        return built
    raise AdapterError(
        f"{_name(parsed)} did not return a model", seen=_kind(built), hint="return an nn.Module"
    )


def build_data(spec: str | ComponentSpec) -> Dataset[Any] | Iterable[Any]:
    """Open the data that a spec stands for.

    Args:
        spec: ``ADAPTER:TARGET?key=value`` or ``FILE.py:FACTORY?key=value``.

    Returns:
        A data set, which is sampled, or an iterable of batches.

    Raises:
        SpecError: If the spec is malformed or no adapter has its name.
        AdapterError: If the adapter does not take the options, raises, or returns no data.
    """
    parsed = _parse(spec, "data")
    built = _call(parsed, registry.data(), "data")
    if is_data(built):
        return built  # type: ignore[no-any-return]
    raise AdapterError(
        f"{_name(parsed)} did not return data",
        seen=_kind(built),
        hint="return a torch Dataset, or an iterable of (input, target) batches",
    )


def is_data(value: Any) -> bool:
    """Whether a value can be used as data: a `Dataset`, or an iterable that can hold batches."""
    from torch import Tensor, nn
    from torch.utils.data import Dataset

    if isinstance(value, Dataset):
        return True
    if isinstance(value, str | bytes | Mapping | Tensor | nn.Module | type):
        return False
    return hasattr(value, "__iter__")


def accepted_options(adapter: Callable[..., Any]) -> list[str] | None:
    """Return the names that a callable takes; None where it takes any, or cannot say."""
    try:
        parameters = inspect.signature(adapter).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters):
        return None
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [item.name for item in parameters if item.kind in kinds]


def _parse(spec: str | ComponentSpec, what: str) -> ComponentSpec:
    return spec if isinstance(spec, ComponentSpec) else ComponentSpec.parse(spec, what)


def _call(spec: ComponentSpec, installed: Registry, what: str) -> Any:
    adapter = installed.load(spec.adapter)
    if spec.adapter == "file":
        factory, leading = file.load(spec.target, what), 0
    else:
        factory, leading = adapter, 1
    _check_options(spec, factory, leading)
    try:
        return adapter(spec.target, **spec.options)
    except (LandscapeError, KeyboardInterrupt):
        raise
    except BaseException as error:
        where = file.place(error, _file_of(factory)) if spec.adapter == "file" else ""
        raise AdapterError(
            f"{_name(spec)} raised an error",
            seen=f"{describe(error)}{where}",
            hint=f"check the options in --{what} {spec}; --debug shows where",
        ) from error


def _check_options(spec: ComponentSpec, factory: Callable[..., Any], leading: int) -> None:
    """Refuse options that the callable does not take, and the lack of those that it needs."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return  # nothing can be said before it is called
    try:
        signature.bind(*[spec.target] * leading, **spec.options)
    except TypeError as error:
        names = (accepted_options(factory) or [])[leading:]
        raise AdapterError(
            f"{_name(spec)} does not take these options",
            seen=f"{error}, in {spec}",
            hint=f"it takes {', '.join(names)}" if names else "it takes no options",
        ) from None


def _file_of(factory: Callable[..., Any]) -> Path:
    try:
        return Path(inspect.getfile(factory))
    except TypeError:
        return Path()


def _name(spec: ComponentSpec) -> str:
    return spec.target if spec.adapter == "file" else f"{spec.adapter}:{spec.target}"


def _kind(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}, not an instance of it"
    return f"a {type(value).__name__}"
