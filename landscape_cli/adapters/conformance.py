"""What an adapter's author runs in their own tests.

from landscape_cli.adapters.conformance import check_model_adapter

def test_adapter_conforms():
    batch = (torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
    check_model_adapter(build_model, "small", batch, width=8)
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from landscape_cli.adapters.building import is_data
from landscape_cli.adapters.registry import describe
from landscape_cli.errors import AdapterError, LandscapeError

if TYPE_CHECKING:
    from torch import Tensor, nn

NONSENSE = "no-such-target-8f3a"
"""A target that no adapter should know."""


class ConformanceError(AdapterError, AssertionError):
    """An adapter that does not do what its contract says."""


def check_model_adapter(
    adapter: Callable[..., Any], target: str, batch: Any, **options: Any
) -> nn.Module:
    """Check that a model adapter does what a probe relies on.

    It returns a module on the CPU with parameters that train; twice the same names and shapes,
    so that a checkpoint fits; weights that can be replaced; a forward pass that takes the batch
    and leads back to a parameter. It refuses a target and an option that it does not know.

    Args:
        adapter: the callable.
        target: a target that it knows.
        batch: a batch as its users' data has it: ``(input, target)``, a mapping or an object.
        options: passed on to the adapter.

    Returns:
        The module, for further checks.

    Raises:
        ConformanceError: At the first thing that is not so.
    """
    model = _build(adapter, target, options)
    _check_module(model)
    _check_repeatable(model, _build(adapter, target, options))
    _check_forward(model, batch)
    _check_refusals(adapter, target, options)
    return model  # type: ignore[no-any-return]


def check_data_adapter(adapter: Callable[..., Any], target: str, **options: Any) -> Any:
    """Check that a data adapter does what a probe relies on.

    It returns a `Dataset` or an iterable of batches; it is not empty; tensors come out of it,
    and the same ones when it is opened again. It refuses a target and an option that it does
    not know.

    Args:
        adapter: the callable.
        target: a target that it knows.
        options: passed on to the adapter.

    Returns:
        The data, opened once more, for further checks.

    Raises:
        ConformanceError: At the first thing that is not so.
    """
    first, second = (_first_items(_open(adapter, target, options)) for _ in range(2))
    if not first:
        raise ConformanceError("the data is empty", seen=target, hint="give at least one sample")
    if not any(_tensors(item) for item in first):
        raise ConformanceError(
            "there are no tensors in the data", seen=repr(first[0])[:80], hint="yield tensors"
        )
    if not _equal(first, second):
        raise ConformanceError(
            "the data differs from one opening to the next",
            seen=f"the first {len(first)} items of {target}",
            hint="draw what is random from a seed that is an option",
        )
    _check_refusals(adapter, target, options)
    return _open(adapter, target, options)


def _build(adapter: Callable[..., Any], target: str, options: dict[str, Any]) -> Any:
    try:
        return adapter(target, **options)
    except (Exception, SystemExit) as error:
        raise ConformanceError(
            "the adapter raised an error for a target that it should know",
            seen=describe(error),
            hint=f"adapter({target!r}, …) should return",
        ) from error


def _open(adapter: Callable[..., Any], target: str, options: dict[str, Any]) -> Any:
    data = _build(adapter, target, options)
    if not is_data(data):
        raise ConformanceError(
            "the adapter did not return data",
            seen=type(data).__name__,
            hint="return a torch Dataset, or an iterable of batches",
        )
    return data


def _check_module(model: Any) -> None:
    from torch import nn

    if not isinstance(model, nn.Module):
        raise ConformanceError(
            "the adapter did not return a model",
            seen=type(model).__name__,
            hint="return an nn.Module",
        )
    devices = {str(tensor.device) for tensor in model.state_dict().values()}
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConformanceError(
            "the model has no parameter that trains",
            seen=f"{sum(1 for _ in model.parameters())} parameters",
            hint="leave requires_grad on",
        )
    if devices != {"cpu"}:
        raise ConformanceError(
            "the model is not on the CPU",
            seen=", ".join(sorted(devices)),
            hint="the probe moves it to the device that is asked for",
        )


def _check_repeatable(model: nn.Module, again: nn.Module) -> None:
    shapes, others = (
        {name: tuple(tensor.shape) for name, tensor in built.state_dict().items()}
        for built in (model, again)
    )
    if shapes != others:
        differing = sorted(
            name for name in {*shapes, *others} if shapes.get(name) != others.get(name)
        )
        raise ConformanceError(
            "two models of one spec have different tensors",
            seen=", ".join(differing[:5]),
            hint="names and shapes may depend on the target and the options alone",
        )
    model.load_state_dict(again.state_dict())


def _check_forward(model: nn.Module, batch: Any) -> None:
    import torch

    output = _output(model, batch)
    floating = [t for t in _tensors(output) if t.is_floating_point() and t.requires_grad]
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if floating:
        found = torch.autograd.grad(floating[0].sum(), parameters, allow_unused=True)
        if any(gradient is not None for gradient in found):
            return
    raise ConformanceError(
        "no gradient leads from the output to a parameter",
        seen=f"{type(output).__name__} with {len(floating)} differentiable tensors",
        hint="do not detach the output, nor compute it under no_grad",
    )


def _output(model: nn.Module, batch: Any) -> Any:
    """Return what the model makes of the batch, without its target or, as some need it, with."""
    try:
        return _call(model, batch, whole=False)
    except (Exception, SystemExit) as error:  # noqa: BLE001  a forward pass may raise anything
        try:
            return _call(model, batch, whole=True)
        except (Exception, SystemExit):  # noqa: BLE001
            known = isinstance(error, LandscapeError)
            seen = str(error).splitlines()[0] if known else describe(error)
            raise ConformanceError(
                "the model does not take the batch",
                seen=seen,
                hint="check the batch that was given",
            ) from error


def _call(model: nn.Module, batch: Any, *, whole: bool) -> Any:
    from landscape_cli.batches import Batch

    split = Batch.split(batch, model, whole=whole)
    return model(*split.inputs, **split.keywords)


def _check_refusals(adapter: Callable[..., Any], target: str, options: dict[str, Any]) -> None:
    try:
        adapter(NONSENSE, **options)
    except AdapterError:
        pass
    except (Exception, SystemExit) as error:
        raise ConformanceError(
            "an unknown target is refused with another error than AdapterError",
            seen=describe(error),
            hint="raise AdapterError(what, seen=target, hint=…)",
        ) from error
    else:
        raise ConformanceError(
            "an unknown target is not refused",
            seen=f"adapter({NONSENSE!r}) returned",
            hint="raise AdapterError(what, seen=target, hint=…)",
        )
    try:
        adapter(target, **options, no_such_option_8f3a=1)
    except (AdapterError, TypeError):
        return
    except (Exception, SystemExit) as error:
        raise ConformanceError(
            "an unknown option is refused with another error than AdapterError or TypeError",
            seen=describe(error),
            hint="name the options that there are",
        ) from error
    raise ConformanceError(
        "an unknown option is not refused",
        seen="adapter(…, no_such_option_8f3a=1) returned",
        hint="take no **options, or name those that there are",
    )


def _first_items(data: Any, count: int = 3) -> list[Any]:
    """Return the first samples of a data set, or the first batches of an iterable."""
    from torch.utils.data import Dataset, IterableDataset

    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        return [data[index] for index in range(min(count, len(data)))]  # type: ignore[arg-type]
    return list(islice(iter(data), count))


def _tensors(value: Any) -> list[Tensor]:
    from landscape_cli.batches import tensors_in

    return tensors_in(value)


def _equal(first: list[Any], second: list[Any]) -> bool:
    import torch

    ones, others = _tensors(first), _tensors(second)
    return len(ones) == len(others) and all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
        for a, b in zip(ones, others, strict=True)
    )
