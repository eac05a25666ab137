"""The engine as a probe uses it, on one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import numpy as np

from bench.cases import Case
from landscape_cli.batches import Sample
from landscape_cli.engine.choice import Choice, Request, choose
from landscape_cli.engine.plain import Plain
from landscape_cli.engine.steering import Steering
from landscape_cli.engine.strategy import Line
from landscape_cli.engine.worker import WORTH_POINTS, Equipment, Worker
from landscape_cli.plan import Plan, PlannedCheckpoint
from landscape_cli.specs import ProbeSpec
from landscape_cli.threads import limited, seconds

RUN_SECONDS = 90.0
"""Length, on the plain path, of the run that the line is part of: what is tried depends on it."""


class Runner:
    """Evaluates a case's line with a chosen strategy, check against the plain path included."""

    def __init__(self, worker: Worker, case: Case, *, gradients: bool, strategy: str) -> None:
        self._case = case
        self.site = worker.site(0)
        self._line = Line("gradient", self.site.gradient, gradients=gradients)
        plain = seconds(lambda: Plain().prepare(self.site, self._line).evaluate(case.steps()[:1]))
        points = max(case.points, int(RUN_SECONDS / plain))
        request = Request(strategy, None, points, case.points, case.steps())
        self.choice: Choice = choose(self.site, self._line, request)

    def __call__(self) -> np.ndarray:
        """Return the columns of the line's points, made ready anew."""
        steering = Steering()
        steering.adopt(self.choice)
        columns, _ = steering.sweep("line", self.site, self._line).evaluate(self._case.steps())
        return columns


@contextmanager
def runner(case: Case, *, gradients: bool = True, strategy: str = "auto") -> Iterator[Runner]:
    """Open a case in the engine."""
    spec = ProbeSpec(("bench",), case.target, "bench", loss=case.loss, lr=1.0, device="cpu")
    here = PlannedCheckpoint("bench", "", 0, 1.0, "")
    grid = tuple(range(1, WORTH_POINTS + 1))  # of a run that is long enough for every trial
    plan = Plan(asdict(spec), (here,), ("gradient",), (), grid)
    equipment = Equipment(spec, case.model(), Sample((case.data(),), None), live=False)
    with Worker(plan, equipment) as worker, limited(worker.settle().threads):
        yield Runner(worker, case, gradients=gradients, strategy=strategy)
