"""``python -m bench.memory``: peak memory of 100 million parameters, in copies of θ.

The model's own weights are not counted. Every row is measured in interpreters of its own: stage by
stage in one, the whole probe in another.
"""

from __future__ import annotations

import ctypes
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[1]
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
WIDTH, LAYERS, BATCH = 3200, 10, 16
DIRECTIONS = ("gradient", "random:1")
SOURCES = ("a checkpoint", "a live model")
STAGES = ("opening", "noise floor", "sweep", "limit")


@dataclass(frozen=True)
class Peak:
    """What the memory of the process grew by, in copies of θ beside the model's own.

    Attributes:
        direction: that is stepped along.
        source: where θ₀ is from.
        parameters: how many there are.
        activations: what one evaluation keeps for its gradient, θ itself aside; in copies too.
        stages: the peak in each stage of a probe, by name.
        probe: the peak of a whole probe, in a process of its own.
    """

    direction: str
    source: str
    parameters: int
    activations: float
    stages: Mapping[str, float]
    probe: float = field(default=float("nan"))


def chain(width: int = WIDTH) -> nn.Module:
    """Return linear layers without activations, of which memory sees the weights alone."""
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(LAYERS)))


def rows(width: int = WIDTH) -> list[tuple[Tensor, Tensor]]:
    """Return one batch for them, the same every time."""
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(BATCH, width, generator=generator) for _ in range(2))
    return [(x, y)]


def peaks() -> list[Peak]:
    """Measure every direction from every source, in interpreters of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.pt"
        torch.save(chain().state_dict(), path)
        pairs = [(direction, source) for source in SOURCES for direction in DIRECTIONS]
        return [_peak_of(direction, source, path) for direction, source in pairs]


def table(found: list[Peak]) -> list[str]:
    """Return the peaks as a table in Markdown."""
    heads = ("direction", "θ₀ from", *STAGES, "whole probe", "activations")
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for peak in found:
        numbers = (*(peak.stages[stage] for stage in STAGES), peak.probe)
        cells = [f"`{peak.direction}`", peak.source, *(f"{number:.2f}" for number in numbers)]
        lines.append("| " + " | ".join([*cells, f"{peak.activations:.3f}"]) + " |")
    return lines


def to_dicts(found: list[Peak]) -> list[dict[str, Any]]:
    """Return plain values, for JSON."""
    return [asdict(peak) for peak in found]


def _peak_of(direction: str, source: str, path: Path) -> Peak:
    stages = _ask("stages", direction, source, path)
    whole = _ask("probe", direction, source, path)
    return Peak(direction, source, **stages, probe=whole["probe"])


def _ask(task: str, direction: str, source: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.memory", task, direction, source, str(path)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(task: str, direction: str, source: str, path: str) -> None:
    """Measure in this process, and print what was found."""
    from landscape_cli.probing import Request

    _warm_up()
    live = source == "a live model"
    model = chain() if live else f"{__file__}:chain"
    settings = {"loss": "mse", "lr": 0.1, "steps": "0.5:2:3", "directions": direction}
    settings |= {"strategy": "plain", "device": "cpu", "dtype": "float32"}
    here = [] if live else [path]
    request = Request.resolve(here, model, f"{__file__}:rows", settings)  # type: ignore[arg-type]
    theta = 4 * LAYERS * WIDTH**2
    # The memory of a live model is there already; that of another is taken by the probe.
    meter = _Meter(theta, own=0 if live else theta)
    if task == "probe":
        import landscape_cli as landscape

        arguments: dict[str, Any] = {"model": model, "data": f"{__file__}:rows", **settings}
        meter.take("probe", lambda: landscape.probe(here, **arguments))
        print(json.dumps(meter.copies))
        return
    activations = _stages(request, meter)
    found = {"parameters": theta // 4, "activations": activations / theta, "stages": meter.copies}
    print(json.dumps(found))


def _stages(request: Any, meter: _Meter) -> int:
    """Go through a probe stage by stage; return the bytes of what an evaluation keeps."""
    from landscape_cli.engine.choice import Choice
    from landscape_cli.engine.limit import limit
    from landscape_cli.engine.worker import Worker
    from landscape_cli.probing import Preparation

    with Preparation(request) as prepared, Worker(prepared.plan, prepared.equipment) as worker:
        label = prepared.plan.directions[-1]
        site = meter.take("opening", lambda: worker.site(0))
        meter.take("noise floor", lambda: worker.base(0))
        worker.steering.adopt(Choice("plain"))
        # From the second point on, as the unit with the first takes the limit along with it.
        meter.take("sweep", lambda: worker.line(0, label, 1, 3))
        towards = worker.headings.direction(label)
        assert towards is not None
        meter.take("limit", lambda: limit(site, towards, []))
        return _activations(site)


def _activations(site: Any) -> int:
    """Return the bytes that one evaluation keeps for its gradient, θ itself aside."""
    weights = {tensor.untyped_storage().data_ptr() for tensor in site.parameters.tensors}
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        site.objective.value_and_change(site.gradient)
    return sum(kept.values())


def _warm_up() -> None:
    """Load every module, and start every thread, that is not to be counted."""
    import landscape_cli as landscape

    with tempfile.TemporaryDirectory() as folder:
        model, path = chain(8), Path(folder) / "weights.pt"
        torch.save(model.state_dict(), path)
        data = rows(8)
        landscape.probe(
            path, model=model, data=data, loss="mse", lr=0.1, steps="1:2:2", directions="random:1"
        )


class _Meter:
    """Reads what the process holds at most while something runs."""

    def __init__(self, theta: int, *, own: int) -> None:
        with suppress(AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        self._theta, self._own = theta, own
        self.copies: dict[str, float] = {}
        self._before = _resident()

    def take(self, name: str, run: Callable[[], Any]) -> Any:
        """Run something and note its peak, in copies of θ beside the model's own."""
        _forget_peak()
        result = run()
        self.copies[name] = (_peak() - self._before - self._own) / self._theta
        return result


def _resident() -> int:
    return _status("VmRSS") or _peak()


def _peak() -> int:
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _forget_peak() -> None:
    """Let the peak begin anew; where the kernel does not allow it, that of all stages is read."""
    with suppress(OSError):
        CLEAR.write_text("5", encoding="ascii")


def _status(name: str) -> int:
    """Return a line of the kernel's account of this process, in bytes; 0 where there is none."""
    with suppress(OSError):
        for line in STATUS.read_text(encoding="ascii").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(*sys.argv[1:])
    else:
        print("\n".join(table(peaks())))
