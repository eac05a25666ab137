"""Run in an interpreter that has landscaper: times its line whenever a line comes in."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

import torch

from bench.by_hand import without_tracking
from bench.cases import CASES
from bench.timing import CLOCKS


def main() -> None:
    """Answer every line on standard input with the seconds that a line of points took."""
    from landscaper.compute import compute_loss_landscape

    threads = os.environ.get("BENCH_THREADS")
    torch.set_num_threads(int(threads) if threads else torch.get_num_threads())
    case, points = CASES[sys.argv[1]], int(sys.argv[2])
    model, (x, y), criterion = without_tracking(case.model()), case.data(), case.criterion()
    now = CLOCKS[os.environ.get("BENCH_CLOCK", "wall")]
    directions = [[torch.randn_like(parameter) for parameter in model.parameters()]]

    def line() -> float:
        started = now()
        compute_loss_landscape(
            model,
            None,
            directions,
            lambda network, _: criterion(network(x), y).item(),
            steps=points,
            dim=1,
            device="cpu",
        )
        return now() - started

    results = sys.stdout
    print("ready", file=results, flush=True)
    for _ in sys.stdin:
        with (
            Path(os.devnull).open("w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
        ):
            taken = line()
        print(json.dumps(taken), file=results, flush=True)


if __name__ == "__main__":
    main()
