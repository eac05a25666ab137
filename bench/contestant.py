"""One contender in an interpreter of its own: times itself whenever a line comes in.

So that nobody's allocator settings, compiled code or memory are anybody else's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import torch

from bench import by_hand, peers
from bench.cases import CASES, Case
from bench.timing import CLOCKS

Line = Callable[[], object]
LEAST_SECONDS = 0.3
"""Of a round: quicker lines are repeated, each made ready and checked anew."""


@dataclass(frozen=True)
class Entry:
    """What a contender is to run.

    Attributes:
        contender: its name in `CONTENDERS`.
        case: name of the case.
        gradients: whether the gradient is wanted at the points, or the loss alone.
        points: of a line.
        threads: to compute with.
        clock: ``wall`` or ``cpu``.
        strategy: of the engine.
        batch: times the case's samples.
        wider: whether the network is the wider one.
    """

    contender: str
    case: str
    gradients: bool
    points: int
    threads: int
    clock: str = "wall"
    strategy: str = "auto"
    batch: int = 1
    wider: bool = False


@contextmanager
def _by_hand(case: Case, entry: Entry) -> Iterator[tuple[Line, str]]:
    model, batch, criterion = by_hand.without_tracking(case.model()), case.data(), case.criterion()
    direction, steps = by_hand.gradient(model, batch, criterion), case.steps()
    line = by_hand.gradient_line if entry.gradients else by_hand.loss_line
    yield lambda: line(model, batch, criterion, direction, steps), ""


@contextmanager
def _peer(case: Case, entry: Entry) -> Iterator[tuple[Line, str]]:
    make = {"loss-landscapes": peers.loss_landscapes, "landscaper": peers.landscaper}
    yield make[entry.contender](case), ""


@contextmanager
def _engine(case: Case, entry: Entry) -> Iterator[tuple[Line, str]]:
    from bench.engine import runner

    with runner(case, gradients=entry.gradients, strategy=entry.strategy) as run:
        chunk = run.choice.chunk
        name = run.choice.strategy
        yield run, f"{name}, {chunk} together" if chunk > 1 else name


Opening = Callable[[Case, Entry], AbstractContextManager[tuple[Line, str]]]

CONTENDERS: Mapping[str, Opening] = {
    "by hand": _by_hand,
    "loss-landscapes": _peer,
    "landscaper": _peer,
    "landscape": _engine,
}


def _seconds(run: Line, now: Callable[[], float]) -> float:
    """Return the mean seconds of a line, over as many as it takes to warm up after the wait."""
    started, lines = now(), 0
    while lines == 0 or now() - started < LEAST_SECONDS:
        run()
        lines += 1
    return (now() - started) / lines


def main() -> None:
    """Answer every line on standard input with the seconds that a line of points takes."""
    entry = Entry(**json.loads(sys.argv[1]))
    torch.set_num_threads(entry.threads)
    case = CASES[entry.case].scaled(batch=entry.batch, wider=entry.wider)
    case = replace(case, points=entry.points)
    now, answers = CLOCKS[entry.clock], sys.stdout
    sys.stdout = sys.stderr
    try:
        opened = CONTENDERS[entry.contender](case, entry)
        with opened as (run, remark):
            print(json.dumps({"remark": remark}), file=answers, flush=True)
            for _ in sys.stdin:
                print(json.dumps({"seconds": _seconds(run, now)}), file=answers, flush=True)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), file=answers, flush=True)


if __name__ == "__main__":
    main()
