"""How much memory tensors took, counted by torch's allocator rather than by the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.profiler import ProfilerActivity, profile


class Peak:
    """The most bytes that were allocated at once beyond those at the start.

    Attributes:
        bytes: the peak, once the block is left.
    """

    bytes = 0


@contextmanager
def peak_allocation() -> Iterator[Peak]:
    """Yield the peak of the CPU memory that tensors take while the block runs."""
    peak, held = Peak(), 0
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as recorded:
        yield peak
    results = recorded.profiler.kineto_results
    changes = [e for e in results.events() if e.name() == "[memory]"]
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        peak.bytes = max(peak.bytes, held)
