"""Peak memory of a gradient line on a model of 100 million parameters, in copies of θ."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
WIDTH, LAYERS, BATCH = 3200, 10, 16


def peak_of(direction: str) -> dict[str, float]:
    """Return the peak in an interpreter of its own, as only growth can be seen."""
    command = [sys.executable, "-m", "bench.memory", direction]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def main(direction: str) -> None:
    """Probe two points and print the peak resident memory, before and after."""
    import landscape_cli as landscape

    layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)]
    model = nn.Sequential(*layers)
    theta = sum(p.numel() * p.element_size() for p in model.parameters())
    data = [(torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH))]
    before = _peak()
    landscape.probe(
        model=model, data=data, loss="mse", lr=0.1, steps="1:2:2", directions=(direction,),
        strategy="plain",
    )  # fmt: skip
    grown = _peak() - before
    print(json.dumps({"parameters": theta // 4, "theta": theta, "grown": grown}))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main(sys.argv[1])
