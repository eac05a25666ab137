"""The fixed batches of an objective: drawn once, moved once, the same at every point."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from landscape_cli import randomness
from landscape_cli.errors import AdapterError, LandscapeError, MeasurementError

TARGET_NAMES = ("target", "targets", "label", "labels", "y")
"""Names under which a mapping or an object keeps what the model should answer."""


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return `value` with every tensor in it changed, containers rebuilt in their own type."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(map_tensors(item, change) for item in value)
    if isinstance(value, Mapping):
        rebuilt = copy.copy(value)
        for key in list(value):
            rebuilt[key] = map_tensors(value[key], change)  # type: ignore[index]
        return rebuilt
    if hasattr(value, "__dict__") and not isinstance(value, type | nn.Module):
        return _map_object(value, change)
    return value


def _map_object(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if callable(getattr(value, "apply", None)) and callable(getattr(value, "to", None)):
        return copy.copy(value).apply(change)  # graph batches know how to change their own tensors
    rebuilt = copy.copy(value)
    for name, item in vars(value).items():
        object.__setattr__(rebuilt, name, map_tensors(item, change))
    return rebuilt


def tensors_in(value: Any) -> list[Tensor]:
    """Return every tensor in a batch, in a fixed order."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, note)
    return found


@dataclass(frozen=True)
class Batch:
    """One batch: what the data gave, and how the model and the loss take it.

    Attributes:
        raw: the batch as the data gave it, tensors moved to device and dtype.
        inputs: positional arguments of the model.
        keywords: keyword arguments of the model.
        target: what the loss compares the output with; None where there is nothing.
        size: number of samples.
    """

    raw: Any
    inputs: tuple[Any, ...]
    keywords: Mapping[str, Any]
    target: Any
    size: int

    @classmethod
    def split(cls, raw: Any, model: nn.Module, *, whole: bool = False) -> Batch:
        """Find input and target in `raw`; with `whole` the model takes the target as well.

        Raises:
            MeasurementError: If the model's forward cannot take what the batch holds.
        """
        size = _sample_count(raw)
        if isinstance(raw, Tensor):
            return cls(raw, (raw,), {}, None, size)
        if isinstance(raw, tuple | list) and not hasattr(raw, "_fields"):
            return _split_sequence(raw, size, whole=whole)
        named = _named_fields(raw)
        target_name = next((name for name in TARGET_NAMES if name in named), None)
        target = named[target_name] if target_name else None
        inputs = dict(named) if whole else {k: v for k, v in named.items() if k != target_name}
        return _split_named(raw, inputs, target, model, size)

    @property
    def has_order(self) -> bool:
        """Whether every tensor has the samples on its first axis."""
        tensors = tensors_in(self.raw)
        return bool(tensors) and all(t.dim() > 0 and t.shape[0] == self.size for t in tensors)

    def permuted(self, order: Tensor, model: nn.Module, *, whole: bool) -> Batch:
        """Return the batch with its samples in another order; only where it `has_order`."""
        return Batch.split(
            map_tensors(self.raw, lambda t: t[order.to(t.device)]), model, whole=whole
        )


def _split_sequence(raw: Sequence[Any], size: int, *, whole: bool) -> Batch:
    if whole or len(raw) == 1:
        return Batch(raw, tuple(raw), {}, None if len(raw) == 1 else raw[-1], size)
    if len(raw) == 0:
        raise MeasurementError("a batch is empty", seen=repr(raw), hint="check the data")
    inputs, target = tuple(raw[:-1]), raw[-1]
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        return Batch(raw, (), dict(inputs[0]), target, size)
    if len(inputs) == 1 and isinstance(inputs[0], tuple | list):
        return Batch(raw, tuple(inputs[0]), {}, target, size)
    return Batch(raw, inputs, {}, target, size)


def _named_fields(raw: Any) -> dict[str, Any]:
    if isinstance(raw, Mapping):
        return {str(key): raw[key] for key in raw}
    if hasattr(raw, "_fields"):
        return dict(zip(raw._fields, raw, strict=True))
    if dataclasses.is_dataclass(raw):
        return {item.name: getattr(raw, item.name) for item in dataclasses.fields(raw)}
    if callable(getattr(raw, "to_dict", None)):
        return {str(key): value for key, value in raw.to_dict().items()}
    return {name: item for name, item in vars(raw).items() if not name.startswith("_")}


def _split_named(
    raw: Any, inputs: dict[str, Any], target: Any, model: nn.Module, size: int
) -> Batch:
    accepted, open_ended = _forward_names(model)
    if open_ended or (inputs and set(inputs) <= accepted):
        return Batch(raw, (), inputs, target, size)
    if len(inputs) == 1:
        return Batch(raw, tuple(inputs.values()), {}, target, size)
    if not isinstance(raw, Mapping) and len(accepted) == 1:
        return Batch(raw, (raw,), {}, target, size)
    raise MeasurementError(
        "the model does not take what a batch holds",
        seen=f"batch: {', '.join(inputs)}; forward: {', '.join(sorted(accepted))}",
        hint="give (input, target) batches, or name the fields as forward names its arguments",
    )


def _forward_names(model: nn.Module) -> tuple[set[str], bool]:
    parameters = inspect.signature(model.forward).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = {item.name for item in parameters if item.kind in kinds}
    return names, any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters)


def _sample_count(raw: Any) -> int:
    graphs = getattr(raw, "num_graphs", None)
    if isinstance(graphs, int):
        return graphs
    for tensor in tensors_in(raw):
        if tensor.dim():
            return int(tensor.shape[0])
    return 1


@dataclass(frozen=True)
class Sample:
    """The raw batches that were drawn, and what identifies them.

    Attributes:
        batches: raw batches on the CPU.
        indices: positions in the data set, where it has positions.
        notices: what differs from what was asked.
    """

    batches: tuple[Any, ...]
    indices: tuple[int, ...] | None
    notices: tuple[str, ...] = ()

    def indices_hash(self) -> str:
        """Return the sha256 of the sample indices, empty where the data has none."""
        if self.indices is None:
            return ""
        return hashlib.sha256(",".join(map(str, self.indices)).encode()).hexdigest()

    def content_hash(self) -> str:
        """Return the sha256 of every tensor of every batch, shapes and types included."""
        digest = hashlib.sha256()
        for batch in self.batches:
            for tensor in tensors_in(batch):
                digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
                flat = tensor.detach().cpu().contiguous().reshape(-1)
                digest.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
        return digest.hexdigest()


def draw(data: Dataset[Any] | Iterable[Any], batch_size: int, count: int, seed: int) -> Sample:
    """Draw `count` batches of `batch_size`, the same for the same seed.

    Only a map-style data set is sampled, without replacement. An iterable data set yields
    samples in its order; everything else yields batches in its order, whatever their size.

    Args:
        data: a `Dataset`, or an iterable of batches.
        batch_size: samples in a batch, where samples are what the data yields.
        count: batches to draw; fewer where the data ends, and the sample says so.
        seed: decides which samples of a map-style data set are used.

    Raises:
        AdapterError: If the data set is empty or raises.
    """
    with randomness.preserved():
        randomness.seed_all(randomness.derived_seed(seed, "data"))
        try:
            sample = _draw(data, batch_size, count, seed)
        except LandscapeError:
            raise
        except Exception as error:
            raise AdapterError(
                "the data raised an error while a batch was read",
                seen=f"{type(error).__name__}: {error}",
                hint="iterate over it in Python, or run with --debug",
            ) from error
    if not sample.batches:
        raise AdapterError("the data is empty", seen="no batch", hint="check the data spec")
    return sample


def _draw(data: Any, batch_size: int, count: int, seed: int) -> Sample:
    if isinstance(data, IterableDataset):
        return _draw_stream(data, batch_size, count)
    if isinstance(data, Dataset):
        return _draw_indexed(data, batch_size, count, seed)
    if isinstance(data, DataLoader):
        for source in (data.generator, getattr(data.sampler, "generator", None)):
            if source is not None:
                source.manual_seed(randomness.derived_seed(seed, "data"))
    batches = tuple(islice(iter(data), count))
    return Sample(batches, None, _shortage(len(batches), count, "batches"))


def _draw_indexed(data: Any, batch_size: int, count: int, seed: int) -> Sample:
    total = len(data)
    wanted = batch_size * count
    generator = torch.Generator().manual_seed(randomness.derived_seed(seed, "samples"))
    indices = torch.randperm(total, generator=generator)[:wanted].tolist()
    batches = tuple(
        _collate(data, indices[start : start + batch_size])
        for start in range(0, len(indices), batch_size)
    )
    return Sample(batches, tuple(indices), _shortage(len(indices), wanted, "samples"))


def _draw_stream(data: Any, batch_size: int, count: int) -> Sample:
    stream = iter(data)
    batches = []
    taken = 0
    for _ in range(count):
        samples = list(islice(stream, batch_size))
        if samples:
            batches.append(_collate_samples(data, samples))
            taken += len(samples)
    return Sample(tuple(batches), None, _shortage(taken, batch_size * count, "samples"))


def _collate(data: Any, indices: list[int]) -> Any:
    fetch = getattr(data, "__getitems__", None)
    samples = fetch(indices) if callable(fetch) else [data[index] for index in indices]
    return _collate_samples(data, samples)


def _collate_samples(data: Any, samples: Any) -> Any:
    collate = getattr(data, "collate_fn", None) or default_collate
    return collate(samples)


def _shortage(got: int, wanted: int, what: str) -> tuple[str, ...]:
    return (f"the data has {got:,} {what}, {wanted:,} were asked for",) if got < wanted else ()


def prepare(
    sample: Sample, model: nn.Module, *, device: torch.device, dtype: torch.dtype, whole: bool
) -> Iterator[Batch]:
    """Yield the batches on `device`, floating tensors in `dtype`, integers as they are."""

    def place(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else None)

    for raw in sample.batches:
        yield Batch.split(map_tensors(raw, place), model, whole=whole)
