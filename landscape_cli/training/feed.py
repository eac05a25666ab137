"""The batches of a training, endlessly: epoch after epoch, in an order that the seed decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import repeat
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from landscape_cli import randomness
from landscape_cli.errors import AdapterError, LandscapeError, SpecError


class Feed:
    """Raw batches of data, as the data give them.

    A map-style data set is shuffled anew in every epoch; a ragged last batch is left out, for
    batch statistics over one or two samples say nothing. Everything else is taken in its order.

    Args:
        data: a `Dataset`, or an iterable of batches.
        batch_size: samples in a batch, where samples are what the data yield.
        full_batch: every batch is the whole data set, in its order.
        seed: decides the order.

    Raises:
        SpecError: If a full batch is wanted of data that have no samples.
        AdapterError: If the data are empty.
    """

    def __init__(
        self,
        data: Dataset[Any] | Iterable[Any],
        *,
        batch_size: int,
        full_batch: bool = False,
        seed: int = 0,
    ) -> None:
        self._data = data
        self._generator = torch.Generator().manual_seed(randomness.derived_seed(seed, "order"))
        self._indexed = isinstance(data, Dataset) and not isinstance(data, IterableDataset)
        self._full = full_batch
        if full_batch and not self._indexed:
            raise SpecError(
                "only a data set with a length has a full batch",
                seen=type(data).__name__,
                hint="leave full_batch out, or give a torch Dataset",
            )
        self.samples = _length(data) if self._indexed else None
        if self.samples == 0:
            raise AdapterError("the data is empty", seen="no sample", hint="check the data spec")
        self.batch_size = batch_size
        if self.samples is not None:
            self.batch_size = self.samples if full_batch else min(batch_size, self.samples)
        if isinstance(data, DataLoader):
            for source in (data.generator, getattr(data.sampler, "generator", None)):
                if source is not None:
                    source.manual_seed(randomness.derived_seed(seed, "order"))

    @property
    def batches_per_epoch(self) -> int | None:
        """Batches in one epoch; None where that is not known beforehand."""
        if self.samples is not None:
            return self.samples // self.batch_size
        return None if isinstance(self._data, IterableDataset) else _length(self._data)

    def __iter__(self) -> Iterator[Any]:
        if self._full:
            yield from repeat(next(_guarded(self._whole())))
        while True:
            yielded = 0
            for batch in _guarded(self._epoch()):
                yielded += 1
                yield batch
            if not yielded:
                raise AdapterError(
                    "the data has no more batches",
                    seen=type(self._data).__name__,
                    hint="fewer steps, or data that can be gone through again",
                )

    def _whole(self) -> Iterator[Any]:
        yield self._gather(torch.arange(self.batch_size))

    def _epoch(self) -> Iterator[Any]:
        if not self._indexed:
            stream = isinstance(self._data, IterableDataset)
            batches: Any = self._loader(batch_size=self.batch_size) if stream else self._data
            yield from batches
            return
        order = torch.randperm(self.samples or 0, generator=self._generator)
        for chosen in torch.split(order, self.batch_size):
            if len(chosen) == self.batch_size:
                yield self._gather(chosen)

    def _gather(self, chosen: torch.Tensor) -> Any:
        data: Any = self._data
        plain = type(data).__getitem__ is TensorDataset.__getitem__
        if plain and getattr(data, "collate_fn", None) is None:
            return tuple(tensor[chosen] for tensor in data.tensors)
        return next(iter(self._loader(batch_sampler=[chosen.tolist()])))

    def _loader(self, **options: Any) -> DataLoader[Any]:
        collate = getattr(self._data, "collate_fn", None)
        return DataLoader(self._data, collate_fn=collate, generator=self._generator, **options)  # type: ignore[arg-type]


def _length(data: Any) -> int | None:
    return len(data) if isinstance(data, Sized) else None


def _guarded(epoch: Iterator[Any]) -> Iterator[Any]:
    """Yield from somebody else's data; an error in there is one of the data."""
    while True:
        try:
            batch = next(epoch)
        except StopIteration:
            return
        except LandscapeError:
            raise
        except Exception as error:
            raise AdapterError(
                "the data raised an error while a batch was read",
                seen=f"{type(error).__name__}: {error}".splitlines()[0],
                hint="iterate over it in Python; --debug shows where",
            ) from error
        yield batch
