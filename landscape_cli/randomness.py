"""The random state of torch, CUDA, numpy and Python: captured, seeded, given back bit for bit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class RandomState:
    """The state of every generator that a model's forward pass may draw from."""

    torch_cpu: Tensor
    torch_cuda: tuple[Tensor, ...]
    numpy: Any
    python: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RandomState):
            return NotImplemented
        return (
            torch.equal(self.torch_cpu, other.torch_cpu)
            and len(self.torch_cuda) == len(other.torch_cuda)
            and all(map(torch.equal, self.torch_cuda, other.torch_cuda))
            and _numpy_key(self.numpy) == _numpy_key(other.numpy)
            and self.python == other.python
        )

    __hash__ = None  # type: ignore[assignment]


def _numpy_key(state: Any) -> tuple[Any, ...]:
    name, keys, *rest = state
    return (name, keys.tobytes(), *rest)


def capture() -> RandomState:
    """Return the present state of all generators."""
    started = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return RandomState(
        torch_cpu=torch.get_rng_state(),
        torch_cuda=tuple(torch.cuda.get_rng_state_all()) if started else (),
        numpy=np.random.get_state(),  # noqa: NPY002 - the legacy generator is what models draw from
        python=random.getstate(),
    )


def restore(state: RandomState) -> None:
    """Put all generators back to `state`."""
    torch.set_rng_state(state.torch_cpu)
    if state.torch_cuda:
        torch.cuda.set_rng_state_all(list(state.torch_cuda))
    np.random.set_state(state.numpy)  # noqa: NPY002
    random.setstate(state.python)


def seed_all(seed: int) -> None:
    """Seed all generators, those of every CUDA device included."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


@contextmanager
def preserved() -> Iterator[None]:
    """Give the caller's random state back, whatever happens inside."""
    state = capture()
    try:
        yield
    finally:
        restore(state)


def derived_seed(seed: int, *purpose: str | int) -> int:
    """Return a seed for one purpose, independent of those for others, from 0 to 2⁶³ − 1."""
    words = [seed % 2**64, *(_word(part) for part in purpose)]
    state = np.random.SeedSequence(words).generate_state(1, dtype=np.uint64)
    return int(state[0] >> np.uint64(1))


def _word(part: str | int) -> int:
    return part if isinstance(part, int) else int.from_bytes(part.encode(), "little")
