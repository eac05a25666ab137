"""A model's tensors as a checkpoint holds them: plain names, each memory once, on the CPU."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from landscape_cli.errors import CheckpointError

WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
"""Parts that torch.compile, FSDP and activation checkpointing put into names."""


@dataclass(frozen=True)
class Weights:
    """Tensors that share no memory, and the names that were left out because they are twins.

    Attributes:
        tensors: contiguous, on the CPU, by name; they may still be the model's own memory.
        tied: name of the kept tensor by the name of its twin.
    """

    tensors: Mapping[str, Tensor]
    tied: Mapping[str, str]

    @classmethod
    def of(cls, model: nn.Module) -> Weights:
        """Return parameters and persistent buffers of a model, its wrappers' prefixes removed.

        Raises:
            CheckpointError: If a tensor is not whole in this process.
        """
        named = _named_tensors(model)
        kept: dict[str, Tensor] = {}
        tied: dict[str, str] = {}
        first: dict[object, str] = {}
        for name, tensor in named.items():
            twin = first.setdefault(_identity(name, tensor), name)
            if twin == name:
                kept[name] = tensor
            else:
                tied[name] = twin
        return cls(_apart(kept), tied)

    def content_hash(self) -> str:
        """Return the sha256 of names, types, shapes and bytes, the same wherever they are kept."""
        digest = hashlib.sha256()
        for name in sorted(self.tensors):
            tensor = self.tensors[name]
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            flat = tensor.reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
        return digest.hexdigest()


def unwrap(model: nn.Module) -> nn.Module:
    """Return the module that data-parallel, averaging and compiling wrappers hold."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel
    from torch.optim.swa_utils import AveragedModel

    while True:
        compiled = getattr(model, "_orig_mod", None)
        if isinstance(model, DataParallel | DistributedDataParallel | AveragedModel):
            model = model.module
        elif isinstance(compiled, nn.Module):
            model = compiled
        else:
            return model


def _named_tensors(model: nn.Module) -> dict[str, Tensor]:
    named: dict[str, Tensor] = {}
    for name, value in unwrap(model).state_dict().items():
        if not isinstance(value, Tensor):
            continue  # extra state of a layer: not a weight, and safetensors could not hold it
        for wrapper in WRAPPERS:
            name = name.replace(wrapper, "")  # noqa: PLW2901
        _require_whole(name, value)
        named[name] = value.detach()
    return named


def _require_whole(name: str, tensor: Tensor) -> None:
    sharded = callable(getattr(tensor, "full_tensor", None))
    if not sharded and tensor.device.type != "meta":
        return
    raise CheckpointError(
        "a tensor of the model is not whole in this process",
        seen=f"{name}: {'sharded' if sharded else 'on the meta device'}",
        hint="gather it first, or save with torch.distributed.checkpoint and probe that folder",
    )


def _identity(name: str, tensor: Tensor) -> object:
    """Return what two names of the very same numbers in memory have in common."""
    if not tensor.numel():
        return name
    start = tensor.untyped_storage().data_ptr() + tensor.storage_offset() * tensor.element_size()
    return tensor.device, tensor.dtype, start, tuple(tensor.shape), tensor.stride()


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous tensors on the CPU, of which no two share a storage."""
    seen: set[int] = set()
    separate: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        local = tensor.to("cpu").contiguous()
        storage = local.untyped_storage().data_ptr()
        separate[name] = local.clone() if storage and storage in seen else local
        seen.add(storage)
    return separate
