"""Where a run computes and in which type; what makes it repeat bit for bit."""

from __future__ import annotations

import copy
import platform
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn

from landscape_cli.errors import SpecError


def choose_device(name: str) -> torch.device:
    """Return the device called `name`; ``auto`` is a GPU, else the CPU; GPUs get their number.

    Raises:
        SpecError: If there is no such device here.
    """
    if "," in name:
        first = name.partition(",")[0]
        raise SpecError("one device is needed", seen=name, hint=f"--device {first}")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SpecError("no such device", seen=name, hint="auto, cpu, cuda, cuda:1, …") from None
    if device.type != "cuda":
        return device
    _check_gpus(name, (device.index or 0) + 1)
    return torch.device("cuda", torch.cuda.current_device()) if device.index is None else device


def _check_gpus(name: str, count: int, *, hint: str = "--device cpu") -> None:
    """Check that there are so many GPUs; the hint is for where there are some."""
    there = torch.cuda.device_count()
    if count > there:
        raise SpecError(
            "there is no such GPU here",
            seen=f"{name}; {there} GPUs",
            hint=hint if there else "--device cpu",
        )


def choose_devices(names: Sequence[str], count: int) -> tuple[torch.device, ...]:
    """Return the device of each of `count` processes on this machine.

    A device that is named is the device of all; several are dealt out in turn. ``cuda`` stands
    for as many GPUs as there are processes, and so does ``auto`` where there are any.

    Args:
        names: as in `--device`, one or several.
        count: how many processes, no fewer than names.

    Raises:
        SpecError: If there is no such device here, or there are not so many.

    Example:
        >>> choose_devices(["cpu"], 2)
        (device(type='cpu'), device(type='cpu'))
    """
    first = names[0]
    if count == 1:
        return (choose_device(first),)
    if first == "cuda" or (first == "auto" and torch.cuda.is_available()):
        _check_gpus(
            f"--device {first}, {count} workers",
            count,
            hint=f"--device {','.join(['cuda:0'] * count)} lets them share one",
        )
        return tuple(torch.device("cuda", index) for index in range(count))
    return tuple(choose_device(names[index % len(names)]) for index in range(count))


def present(device: torch.device) -> AbstractContextManager[object]:
    """Make a GPU the present one, for what asks for ``cuda`` without a number."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def describe_devices(devices: Sequence[torch.device]) -> str:
    """Return the names of several devices, each once; `plan.device_kinds` reads them."""
    return ", ".join(dict.fromkeys(map(describe_device, devices)))


def describe_device(device: torch.device) -> str:
    """Return a name that tells machines apart where numbers may differ."""
    if device.type == "cuda":
        return f"{device} {torch.cuda.get_device_name(device)}"
    return f"{device} {platform.machine()}"


@contextmanager
def deterministic(*, allow_tf32: bool = False) -> Iterator[None]:
    """Ask for full precision and repeatable algorithms, and put the flags back."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = (matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic)
    matmul.allow_tf32 = cudnn.allow_tf32 = allow_tf32
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = before


@contextmanager
def place_model(
    model: nn.Module, device: torch.device, dtype: str, *, live: bool, loads: bool = True
) -> Iterator[nn.Module]:
    """Yield the model on its device in its type; a live one is itself, or a copy, and comes back.

    A live model that is itself is put back from a copy of its state where checkpoints are loaded
    into it. Where it is measured as it stands, whoever moves θ and the buffers has their values
    and puts them back, and only what does not train is kept here, which a forward pass may
    write to all the same (the slow copy of a momentum encoder, an embedding with a largest norm).

    Args:
        model: freshly built, or somebody's own (`live`).
        device: where to compute.
        dtype: name of the floating type to compute in.
        live: whether the module belongs to the caller.
        loads: whether checkpoints are loaded into the model.
    """
    wanted = getattr(torch, dtype)
    if not live:
        yield model.to(device=device, dtype=wanted)
        return
    if any(p.device != device or p.dtype != wanted for p in model.parameters()):
        yield copy.deepcopy(model).to(device=device, dtype=wanted)
        return
    tensors = _state_of(model) if loads else [p for p in model.parameters() if not p.requires_grad]
    kept = [(tensor, tensor.data, tensor.detach().clone()) for tensor in tensors]
    try:
        yield model
    finally:
        for tensor, data, values in kept:
            data.copy_(values)
            if isinstance(tensor, nn.Parameter):
                tensor.data = data


def _state_of(model: nn.Module) -> list[torch.Tensor]:
    """Return what PyTorch saves of a model, tied tensors once."""
    state = model.state_dict(keep_vars=True).values()
    return list({id(value): value for value in state if isinstance(value, torch.Tensor)}.values())
