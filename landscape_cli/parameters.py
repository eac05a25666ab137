"""θ as a set of tensors: sums over all of them in float64, steps along a direction, restore."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import pairwise

import torch
from torch import Tensor, nn

from landscape_cli.errors import MeasurementError

Tensors = Sequence[Tensor]

CPU_BLOCK = 1 << 16
"""Elements summed together on a CPU: two float64 copies of them stay in the cache."""
CUDA_BLOCK = 1 << 24
"""Elements summed together on a GPU, where launches cost and caches matter less."""


class Parameters:
    """The trainable tensors θ of a model, each once, with the point θ₀ they started from.

    The model's own tensors are the working copy: `move` writes to them in place and `restore`
    brings θ₀ back by copying, never by subtracting, so that it is exact.

    Args:
        model: the module; its parameters without ``requires_grad`` stay where they are.
        origin: θ₀ where somebody has it already; None to take what the parameters are now.

    Raises:
        MeasurementError: If nothing trains, or two parameters overlap in memory.
    """

    def __init__(self, model: nn.Module, *, origin: Tensors | None = None) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if not named:
            raise MeasurementError(
                "the model has no trainable parameter",
                seen=f"{sum(1 for _ in model.parameters())} parameters, none requires a gradient",
                hint="leave requires_grad on for the parameters to probe",
            )
        self.names = tuple(name for name, _ in named)
        self.tensors = tuple(parameter for _, parameter in named)
        self._data = [parameter.data for parameter in self.tensors]
        kept = (parameter.detach().clone() for parameter in self.tensors)
        self.origin = tuple(kept if origin is None else origin)
        _refuse_overlaps(self.names, self.tensors)

    @property
    def count(self) -> int:
        """Number of trainable scalars, tied ones once."""
        return sum(tensor.numel() for tensor in self.tensors)

    @property
    def device(self) -> torch.device:
        """Where the parameters lie; the first one's device if they lie on several."""
        return self.tensors[0].device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the first parameter."""
        return self.tensors[0].dtype

    def move(self, direction: Tensors, step_size: float) -> None:
        """Set θ = θ₀ − a·d, where a is `step_size`."""
        with torch.no_grad():
            torch._foreach_copy_(self._data, list(self.origin))
            self._add(direction, -step_size)

    def _add(self, direction: Tensors, factor: float) -> None:
        if isinstance(direction, list | tuple):
            torch._foreach_add_(self._data, list(direction), alpha=factor)
            return
        for data, part in zip(self._data, direction, strict=True):  # made as it is used
            data.add_(part, alpha=factor)

    def move_along(self, directions: Sequence[Tensors], step_sizes: Sequence[float]) -> None:
        """Set θ = θ₀ − Σⱼ aⱼ·dⱼ."""
        (first, *rest), (size, *others) = directions, step_sizes
        self.move(first, size)
        with torch.no_grad():
            for direction, other in zip(rest, others, strict=True):
                self._add(direction, -other)

    def move_by(self, directions: Sequence[Tensors], step_sizes: Tensor) -> None:
        """Set θ = θ₀ − Σⱼ aⱼ·dⱼ without the host knowing a, shape (J,) on the device."""
        with torch.no_grad():
            torch._foreach_copy_(self._data, list(self.origin))
            for direction, size in zip(directions, step_sizes, strict=True):
                for data, part in zip(self._data, direction, strict=True):
                    data.addcmul_(part, size, value=-1)

    def place(self, tensors: Tensors) -> None:
        """Set θ to the values of `tensors`."""
        with torch.no_grad():
            torch._foreach_copy_(self._data, list(tensors))

    def place_at(self, position: int, values: Tensor) -> None:
        """Set one tensor of θ to `values`."""
        with torch.no_grad():
            self._data[position].copy_(values)

    def restore(self) -> None:
        """Set θ = θ₀ bit for bit."""
        self.place(self.origin)

    def squared_distance(self) -> Tensor:
        """Return ‖θ − θ₀‖₂² as it was moved, after rounding; float64, shape ()."""
        return squared_difference(self._data, self.origin)


def _refuse_overlaps(names: Sequence[str], tensors: Tensors) -> None:
    extents = sorted(
        (str(t.device), t.data_ptr(), t.data_ptr() + t.numel() * t.element_size(), name)
        for name, t in zip(names, tensors, strict=True)
        if t.numel()
    )
    for (device, _, end, first), (other, start, _, second) in pairwise(extents):
        if device == other and start < end:
            raise MeasurementError(
                "two parameters overlap in memory without being the same parameter",
                seen=f"{first} and {second}",
                hint="tie them by assigning the same nn.Parameter to both",
            )


def _blocks(*operands: Tensors) -> Iterator[tuple[Tensor, ...]]:
    """Yield equal flat pieces of the operands: large tensors cut, small ones put together."""
    block = CUDA_BLOCK if operands[0][0].is_cuda else CPU_BLOCK
    pending: list[tuple[Tensor, ...]] = []
    waiting = 0
    for group in zip(*operands, strict=True):
        flat = _flatten(group)
        size = flat[0].numel()
        if size >= block:
            yield from zip(*(torch.split(tensor, block) for tensor in flat), strict=True)
            continue
        if pending and pending[0][0].device != flat[0].device:
            yield _join(pending)
            pending, waiting = [], 0
        pending.append(flat)
        waiting += size
        if waiting >= block:
            yield _join(pending)
            pending, waiting = [], 0
    if pending:
        yield _join(pending)


def _flatten(group: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    if all(t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last) for t in group):
        group = tuple(tensor.permute(0, 2, 3, 1) for tensor in group)
    return tuple(tensor.detach().reshape(-1) for tensor in group)


def _join(groups: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    if len(groups) == 1:
        return groups[0]
    return tuple(torch.cat(tensors) for tensors in zip(*groups, strict=True))


def inner_product(first: Tensors, second: Tensors) -> Tensor:
    """Return ⟨x, y⟩ over all tensors, summed in float64; shape ()."""
    sums = _Sums(first, second)
    for term, x, y in sums:
        torch.dot(x, y, out=term)
    return sums.total()


def squared_norm(tensors: Tensors) -> Tensor:
    """Return ‖x‖₂² over all tensors, summed in float64; shape ()."""
    sums = _Sums(tensors)
    for term, x in sums:
        torch.dot(x, x, out=term)
    return sums.total()


def squared_difference(first: Tensors, second: Tensors) -> Tensor:
    """Return ‖x − y‖₂², subtracted and summed in float64; shape ()."""
    sums = _Sums(first, second)
    for term, x, y in sums:
        difference = x.sub_(y)
        torch.dot(difference, difference, out=term)
    return sums.total()


def gradient_sums(gradient: Tensors, reference: Tensors) -> Tensor:
    """Return (‖x‖₂², ‖x − r‖₂², ⟨x, r⟩) in one pass over memory; float64, shape (3,).

    The difference and the product are formed in float64, so that neither cancellation nor
    overflow adds to the rounding of the gradients themselves.
    """
    sums = _Sums(gradient, reference, shape=(3,))
    for term, x, r in sums:
        norm, change, product = term.unbind()
        torch.dot(x, x, out=norm)
        torch.dot(x, r, out=product)
        difference = x.sub_(r)
        torch.dot(difference, difference, out=change)
    return sums.total()


class _Sums:
    """Sums over blocks of float64 copies, to be iterated over once.

    Iterating yields where the sum of a block goes, and its operands, which may be written over
    before the next block comes.

    Args:
        operands: tensors alike, of which corresponding pieces come together.
        shape: of a sum.
    """

    def __init__(self, *operands: Tensors, shape: tuple[int, ...] = ()) -> None:
        self._operands = operands
        self._shape = (sum(1 + tensor.numel() // CPU_BLOCK for tensor in operands[0]), *shape)
        self._rows: dict[torch.device, Tensor] = {}
        self._used: dict[torch.device, int] = {}
        self._scratch = _SCRATCH if operands[0][0].device.type == "cpu" else _Scratch()

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for pieces in _blocks(*self._operands):
            yield self._next_on(pieces[0].device), *self._scratch.widened(pieces)

    def _next_on(self, device: torch.device) -> Tensor:
        if device not in self._rows:
            self._rows[device] = torch.empty(self._shape, dtype=torch.float64, device=device)
        position = self._used.get(device, 0)
        self._used[device] = position + 1
        return self._rows[device][position]

    def total(self) -> Tensor:
        """Return the sum of all, on the first tensor's device."""
        device = self._operands[0][0].device
        parts = [rows[: self._used[place]].to(device) for place, rows in self._rows.items()]
        return torch.cat(parts).sum(dim=0)


class _Scratch(threading.local):
    """Memory for float64 copies of one block, of each thread its own.

    On a CPU it is kept: what is taken and freed again at every block of a large θ breaks up the
    heap of the C library, which was seen to grow by two copies of θ.
    """

    def __init__(self) -> None:
        self._memory: dict[torch.device, Tensor] = {}

    def widened(self, pieces: tuple[Tensor, ...]) -> list[Tensor]:
        """Return float64 copies of the pieces, which the next ones are written over."""
        device, size = pieces[0].device, pieces[0].numel()
        memory = self._memory.get(device)
        if memory is None or memory.numel() < len(pieces) * size:
            self._memory.pop(device, None)
            room = len(pieces) * max(size, 0 if device.type != "cpu" else 2 * CPU_BLOCK)
            memory = self._memory[device] = torch.empty(room, dtype=torch.float64, device=device)
        rows = memory[: len(pieces) * size].view(len(pieces), size)
        return [row.copy_(piece) for row, piece in zip(rows, pieces, strict=True)]


_SCRATCH = _Scratch()


def norm(tensors: Tensors) -> float:
    """Return ‖x‖₂ over all tensors; float64 sums."""
    return float(squared_norm(tensors).sqrt())


def scaled(tensors: Tensors, factor: float) -> list[Tensor]:
    """Return factor · x as new tensors."""
    return [tensor * factor for tensor in tensors]


@contextmanager
def chosen_parameters(
    model: nn.Module, patterns: Sequence[str], frozen: Sequence[str]
) -> Iterator[int]:
    """Let only the parameters train that a pattern names and `frozen` does not; yield how many.

    A pattern is a shell pattern on the parameter's name: ``layer4.*``, ``*lora_*``. Without
    patterns all are named. On leaving, every parameter trains that did before.

    Raises:
        MeasurementError: If a pattern names no parameter.
    """
    flags = {name: p.requires_grad for name, p in model.named_parameters()}
    for pattern in (*patterns, *frozen):
        _refuse_unmatched(pattern, list(flags))
    for name, parameter in model.named_parameters():
        wanted = not patterns or _is_named(name, patterns)
        parameter.requires_grad_(flags[name] and wanted and not _is_named(name, frozen))
    try:
        yield sum(parameter.requires_grad for parameter in model.parameters())
    finally:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(flags[name])


def _is_named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _refuse_unmatched(pattern: str, names: Sequence[str]) -> None:
    if any(fnmatchcase(name, pattern) for name in names):
        return
    raise MeasurementError(
        f"no parameter is named {pattern!r}",
        seen=", ".join(names[:8]) + (", …" if len(names) > 8 else ""),
        hint="a shell pattern such as 'layer4.*', matched against the whole name",
    )
