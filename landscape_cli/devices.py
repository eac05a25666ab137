"""Where a run computes and in which type; what makes it repeat bit for bit."""

from __future__ import annotations

import copy
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from landscape_cli.errors import SpecError


def choose_device(name: str) -> torch.device:
    """Return the device called `name`; ``auto`` is the first GPU, else the CPU.

    Raises:
        SpecError: If there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SpecError("no such device", seen=name, hint="auto, cpu, cuda, cuda:1, …") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise SpecError(
            "there is no such GPU here",
            seen=f"{name}; {torch.cuda.device_count()} GPUs",
            hint="--device cpu",
        )
    return device


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
    model: nn.Module, device: torch.device, dtype: str, *, live: bool
) -> Iterator[nn.Module]:
    """Yield the model on its device in its type; a live one is itself, or a copy, and comes back.

    Args:
        model: freshly built, or somebody's own (`live`).
        device: where to compute.
        dtype: name of the floating type to compute in.
        live: whether the module belongs to the caller.
    """
    wanted = getattr(torch, dtype)
    if not live:
        yield model.to(device=device, dtype=wanted)
        return
    if any(p.device != device or p.dtype != wanted for p in model.parameters()):
        yield copy.deepcopy(model).to(device=device, dtype=wanted)
        return
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    try:
        yield model
    finally:
        with torch.no_grad():
            for name, value in model.state_dict().items():
                value.copy_(state[name])
