"""What the machine can do: products of matrices and convolutions, measured here and now."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from bench.cases import Case

SECONDS = 0.5


def peak_flops(case: Case) -> float:
    """Return the most FLOP/s of a large product, or of a large convolution for image nets."""
    if case.target in ("cnn", "resnet", "vgg"):
        x = torch.randn(64, 64, 32, 32).to(memory_format=torch.channels_last)
        w = torch.randn(128, 64, 3, 3).to(memory_format=torch.channels_last)
        return _rate(lambda: F.conv2d(x, w, padding=1), 2 * 64 * 128 * 64 * 9 * 32 * 32)
    a = torch.randn(1024, 1024)
    return _rate(lambda: a @ a, 2 * 1024**3)


def _rate(run: Callable[[], object], flops: int) -> float:
    run()
    best, started = float("inf"), time.perf_counter()
    while time.perf_counter() - started < SECONDS:
        before = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - before)
    return flops / best


def flops_per_point(case: Case) -> int:
    """Return the FLOPs of one forward and backward pass, as torch counts them."""
    model, (x, y), criterion = case.model(), case.data(), case.criterion()
    with FlopCounterMode(display=False) as counter:
        criterion(model(x), y).backward()
    return int(counter.get_total_flops())
