"""Batches that do not fit on a device: kept by the host, copied over ahead of their use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, overload

import torch
from torch import Tensor, nn

from landscape_cli.batches import Batch, map_tensors, tensors_in

BATCH_SHARE = 0.25
"""Of the free memory of a device, what the batches may take; more of them stay with the host."""
FEWEST = 3
"""Batches from which that saves anything, as two are on the device at any time."""


def fit(raws: Sequence[Any], dtype: torch.dtype, free_bytes: int) -> bool:
    """Whether the tensors of raw batches, floating ones in `dtype`, fit their share of a device."""
    taken = 0
    for tensor in (tensor for raw in raws for tensor in tensors_in(raw)):
        width = dtype.itemsize if tensor.is_floating_point() else tensor.element_size()
        taken += tensor.numel() * width
    return taken <= BATCH_SHARE * free_bytes


def staged(
    batches: Sequence[Batch], model: nn.Module, device: torch.device, *, whole: bool
) -> Sequence[Batch]:
    """Return batches so that each is on the device when it is asked for.

    Those that are there are returned as they are, and so few that nothing would be saved are
    moved.

    Args:
        batches: on the device, or on the host.
        model: takes them.
        device: where it computes.
        whole: as for `Batch.split`.
    """
    if all(t.device == device for batch in batches for t in tensors_in(batch.raw)):
        return batches
    if len(batches) >= FEWEST:
        return Prefetched(batches, model, device, whole=whole)
    raws = [map_tensors(batch.raw, lambda t: t.to(device)) for batch in batches]
    return [Batch.split(raw, model, whole=whole) for raw in raws]


class Prefetched(Sequence[Batch]):
    """Batches of the host, of which no more than two are on the device: the present and the next.

    Asking for a batch by its index starts the copy of the one after it, the first after the last,
    so that it arrives while the present one is evaluated. Iterating copies one at a time. Not to
    be used by two threads at once.

    Args:
        batches: on the host; for a GPU they are moved to memory that it can read by itself.
        model: takes them.
        device: where they are wanted.
        whole: as for `Batch.split`.
    """

    def __init__(
        self, batches: Sequence[Batch], model: nn.Module, device: torch.device, *, whole: bool
    ) -> None:
        self._model, self._whole, self._device = model, whole, device
        self._lane: Lane = CudaLane(device) if device.type == "cuda" else DirectLane()
        self._raws = [self._lane.kept(batch.raw) for batch in batches]
        self._present: tuple[int, Batch] | None = None
        self._coming: tuple[int, Callable[[], Any]] | None = None

    def __len__(self) -> int:
        return len(self._raws)

    def __iter__(self) -> Iterator[Batch]:
        # Whoever iterates still holds the batch before when asking for the next.
        return (self._fetched(index) for index in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Batch: ...
    @overload
    def __getitem__(self, index: slice) -> list[Batch]: ...
    def __getitem__(self, index: int | slice) -> Batch | list[Batch]:
        if isinstance(index, slice):
            self.release()
            return [self._split(self._lane.start(raw)()) for raw in self._raws[index]]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        batch = self._fetched(index % len(self))
        following = (index + 1) % len(self)
        if self._coming is None and following != index % len(self):
            self._coming = following, self._lane.start(self._raws[following])
        return batch

    def _fetched(self, index: int) -> Batch:
        """Return a batch that is there, or wait for it."""
        if self._present is None or self._present[0] != index:
            if self._present is not None:
                self._present = None  # before another takes its memory
                self._lane.leave()
            coming, self._coming = self._coming, None
            arrive = coming[1] if coming and coming[0] == index else None
            del coming
            self._present = index, self._split((arrive or self._lane.start(self._raws[index]))())
        return self._present[1]

    def _split(self, raw: Any) -> Batch:
        return Batch.split(raw, self._model, whole=self._whole)

    def release(self) -> None:
        """Let go of what is on the device."""
        self._present = self._coming = None

    def changed(self, change: Callable[[Tensor], Tensor], model: nn.Module) -> Prefetched:
        """Return the same batches with every tensor changed, for another model."""
        raws = [map_tensors(raw, change) for raw in self._raws]
        batches = [Batch.split(raw, model, whole=self._whole) for raw in raws]
        return Prefetched(batches, model, self._device, whole=self._whole)


class Lane(Protocol):
    """How batches get from the host to the device."""

    def kept(self, raw: Any) -> Any:
        """Return a raw batch as the host is to keep it."""
        ...

    def start(self, raw: Any) -> Callable[[], Any]:
        """Begin to copy a raw batch; what is returned waits for the copy and returns it."""
        ...

    def leave(self) -> None:
        """Note that the batch that was used last is not needed by anything that comes."""
        ...


class DirectLane:
    """Copies within the memory of the host, at once."""

    def kept(self, raw: Any) -> Any:
        """Return the batch itself."""
        return raw

    def start(self, raw: Any) -> Callable[[], Any]:
        """Copy the batch."""
        copied = map_tensors(raw, Tensor.clone)
        return lambda: copied

    def leave(self) -> None:
        """Note nothing: what was copied is no longer read when it is let go."""


class CudaLane:
    """Copies from pinned memory on a stream of its own, while another stream computes."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._left: torch.cuda.Event | None = None

    def kept(self, raw: Any) -> Any:
        """Return the batch in memory that the GPU reads by itself."""
        return map_tensors(raw, Tensor.pin_memory)

    def start(self, raw: Any) -> Callable[[], Any]:
        """Begin to copy as soon as nothing computes on the batch that was let go.

        The host waits for that: it would otherwise run ahead, with ever more batches on the GPU.
        """
        if self._left is not None:
            self._left.synchronize()
            self._left = None
        with torch.cuda.stream(self._stream):
            moved = map_tensors(raw, lambda t: t.to(self._device, non_blocking=True))
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(self._stream)
        return lambda: self._arrived(moved, copied)

    def _arrived(self, moved: Any, copied: torch.cuda.Event) -> Any:
        """Let the present stream wait for a copy, and its memory stay until that has used it."""
        present = torch.cuda.current_stream(self._device)
        present.wait_event(copied)
        for tensor in tensors_in(moved):
            tensor.record_stream(present)
        return moved

    def leave(self) -> None:
        """Note how far the present stream has to get before the memory is free."""
        self._left = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._left.record(torch.cuda.current_stream(self._device))
