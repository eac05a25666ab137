"""Whether a forward pass belongs to a measurement, which the hooks of a training must not count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_MEASURING: ContextVar[bool] = ContextVar("landscape_measuring", default=False)


def is_measuring() -> bool:
    """Whether the model is being probed now, in the middle of its training.

    Hooks that gather something for the training itself, statistics of a layer's inputs say, ask
    this and leave such passes out.
    """
    return _MEASURING.get()


@contextmanager
def measuring() -> Iterator[None]:
    """Say so for the time of a measurement."""
    token = _MEASURING.set(True)
    try:
        yield
    finally:
        _MEASURING.reset(token)
