"""What the machine can do: products of matrices and convolutions, measured here and now."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from bench.cases import Case
from bench.timing import CLOCKS

SECONDS = 0.5


def peak_flops(case: Case, clock: str = "wall") -> float:
    """Return the most FLOP/s of a large product, or of a large convolution for image nets."""
    if case.target in ("cnn", "resnet", "vgg"):
        x = torch.randn(64, 64, 32, 32).to(memory_format=torch.channels_last)
        w = torch.randn(128, 64, 3, 3).to(memory_format=torch.channels_last)
        flops = 2 * 64 * 128 * 64 * 9 * 32 * 32
        return _rate(lambda: F.conv2d(x, w, padding=1), flops, CLOCKS[clock])
    a = torch.randn(1024, 1024)
    return _rate(lambda: a @ a, 2 * 1024**3, CLOCKS[clock])


def _rate(run: Callable[[], object], flops: int, now: Callable[[], float]) -> float:
    run()
    best, started = float("inf"), now()
    while now() - started < SECONDS:
        before = now()
        run()
        best = min(best, now() - before)
    return flops / best


def flops_per_point(case: Case) -> int:
    """Return the FLOPs of one forward and backward pass, as torch counts them."""
    model, (x, y), criterion = case.model(), case.data(), case.criterion()
    with FlopCounterMode(display=False) as counter:
        criterion(model(x), y).backward()
    return int(counter.get_total_flops())
