"""Where the time of a point goes, operation by operation: by hand, and in the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from torch.profiler import ProfilerActivity, profile

from bench import by_hand
from bench.cases import Case
from bench.engine import runner

KINDS: Mapping[str, tuple[str, ...]] = {
    "products and convolutions": ("mm", "bmm", "addm", "baddb", "convolution", "scaled_dot", "mv"),
    "normalisation": ("batch_norm", "layer_norm"),
    "pooling": ("pool",),
    "copies and zeros": ("copy_", "fill_", "zero_", "cat", "clone", "empty"),
}
"""Parts of the names of torch's operations; the first kind that fits counts."""
WARM_UPS = 2
"""Lines before the profile, in which memory comes to rest."""
OTHERS, REST = "elementwise and sums", "outside of operations"


@dataclass(frozen=True)
class Breakdown:
    """Milliseconds a point by kind of operation.

    Attributes:
        case: title of the case, and what is evaluated.
        engine: of the plain strategy.
        hand: of the loop by hand.
    """

    case: str
    hand: Mapping[str, float]
    engine: Mapping[str, float]


def break_down(case: Case, *, gradients: bool) -> Breakdown:
    """Profile a line by hand and on the plain path, in this process, one after the other.

    The profiler itself takes a few microseconds an operation, which nets of small ones show.
    """
    case = replace(case, points=max(4, min(case.points, 16)))
    model, batch, criterion = by_hand.without_tracking(case.model()), case.data(), case.criterion()
    direction = by_hand.gradient(model, batch, criterion)
    line = by_hand.gradient_line if gradients else by_hand.loss_line
    hand = _profiled(lambda: line(model, batch, criterion, direction, case.steps()), case.points)
    with runner(case, gradients=gradients, strategy="plain") as run:
        engine = _profiled(run, case.points)
    what = "gradients" if gradients else "losses"
    return Breakdown(f"{case.title}, {what}", hand, engine)


def _profiled(line: Callable[[], object], points: int) -> dict[str, float]:
    for _ in range(WARM_UPS):
        line()
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        line()
    spent: defaultdict[str, float] = defaultdict(float)
    for event in profiler.key_averages():
        spent[_kind(event.key)] += event.self_cpu_time_total / 1e3 / points
    return dict(spent)


def _kind(name: str) -> str:
    if not name.startswith(("aten::", "mkldnn")):
        return REST
    fitting = (k for k, parts in KINDS.items() if any(part in name for part in parts))
    return next(fitting, OTHERS)


def table(breakdowns: list[Breakdown]) -> list[str]:
    """Return the breakdowns as a table: by hand → engine, in milliseconds a point."""
    kinds = [*KINDS, OTHERS, REST]
    rows = ["| network | " + " | ".join([*kinds, "sum"]) + " |", "|---" * (len(kinds) + 2) + "|"]
    for found in breakdowns:
        cells = [
            f"{found.hand.get(kind, 0):.3g} → {found.engine.get(kind, 0):.3g}" for kind in kinds
        ]
        total = f"{sum(found.hand.values()):.3g} → {sum(found.engine.values()):.3g}"
        rows.append(f"| {found.case} | " + " | ".join([*cells, total]) + " |")
    return rows
