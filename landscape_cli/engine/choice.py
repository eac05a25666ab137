"""Which strategy a run uses, and how many points together: by rule, confirmed by timing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from landscape_cli.engine.check import CheckedSweep
from landscape_cli.engine.compiled import Compiled
from landscape_cli.engine.compressed import Compressed
from landscape_cli.engine.graph import Graph
from landscape_cli.engine.lanes import free_lanes
from landscape_cli.engine.memory import available_bytes
from landscape_cli.engine.parallel import Parallel
from landscape_cli.engine.plain import Plain
from landscape_cli.engine.stacked import Stacked
from landscape_cli.engine.strategy import Slice, Strategy, Sweep
from landscape_cli.errors import MeasurementError, SpecError
from landscape_cli.site import Site

STRATEGIES: Mapping[str, Strategy] = {  # the likeliest first
    strategy.name: strategy
    for strategy in (Plain(), Compressed(), Stacked(), Graph(), Parallel(), Compiled())
}
WORTH_SECONDS = 0.5
"""Runs that the plain strategy would finish sooner are left to it."""
LARGEST_CHUNK = 512
ADVANTAGE = 0.95
"""Another strategy must take at most this share of the time."""
GROWTH_ADVANTAGE = 0.93
"""A larger chunk must take at most this share of the time for a still larger one to be tried."""
MEMORY_SHARE = 0.4
"""Of the free memory, what a chunk may take."""
TRIALS = 4
"""Evaluations in which one size of a chunk is tried: one to warm up, three to be timed."""
TRIAL_SECONDS = 1.0
"""Of points that are quicker, several in every lane are timed together, at most `REPEATS`; fewer
in a short run."""
REPEATS = 4
MISSES = 2
"""Sizes in a row that may be no better before the search for the best one ends."""
TRIAL_SHARE = 0.25
"""Of the run's points, how many a trial may be worth."""


@dataclass(frozen=True)
class Choice:
    """A strategy, its chunk, and why.

    Attributes:
        strategy: name of the strategy.
        chunk: points evaluated together.
        reason: one line for the user; empty for none.
    """

    strategy: str
    chunk: int = 1
    reason: str = ""


@dataclass(frozen=True)
class Request:
    """What a choice is made for.

    Attributes:
        strategy: ``auto`` or a name.
        chunk: points evaluated together; None to find out.
        points: how many points the run has.
        line_points: how many points a slice has.
        sizes: step sizes to try out, shape (K,) or (K, J).
    """

    strategy: str
    chunk: int | None
    points: int
    line_points: int
    sizes: np.ndarray = field(default_factory=lambda: np.empty(0))


def find_strategy(name: str) -> Strategy:
    """Return the strategy called `name`.

    Raises:
        SpecError: If there is none.
    """
    try:
        return STRATEGIES[name]
    except KeyError:
        raise SpecError(
            f"no strategy is named {name!r}", seen=", ".join(STRATEGIES), hint="--strategy auto"
        ) from None


def choose(site: Site, slice_: Slice, request: Request) -> Choice:
    """Choose how the points of a run are evaluated.

    Raises:
        MeasurementError: If a strategy was asked for that cannot serve here.
    """
    if request.strategy != "auto":
        return _forced(site, slice_, request)
    if slice_.observers:
        return Choice("plain", 1, "")
    seconds = _plain_seconds(site, slice_, request)
    if seconds * request.points < WORTH_SECONDS:
        return Choice("plain", 1, "")
    best, best_seconds = Choice("plain"), seconds
    for strategy in _candidates(site, slice_, seconds, request.points):
        chunk, taken = _trial(strategy, site, slice_, request, seconds)
        if taken < best_seconds * ADVANTAGE:
            best, best_seconds = Choice(strategy.name, chunk), taken
    if best.strategy == "plain":
        return best
    return Choice(best.strategy, best.chunk, _reason(best, best_seconds, seconds))


def _reason(choice: Choice, seconds: float, plain_seconds: float) -> str:
    summary = find_strategy(choice.strategy).summary
    return (
        f"strategy {choice.strategy} ({summary}), {choice.chunk} points together: "
        f"{seconds * 1e3:.3g} ms a point, plain {plain_seconds * 1e3:.3g} ms"
    )


def _forced(site: Site, slice_: Slice, request: Request) -> Choice:
    strategy = find_strategy(request.strategy)
    refusal = strategy.refusal(site, slice_)
    if refusal:
        raise MeasurementError(
            f"the strategy {strategy.name} cannot serve here", seen=refusal, hint="--strategy auto"
        )
    if request.chunk is None:
        chunks = tuple(strategy.chunks(site, _most(site, request)))
        if len(chunks) == 1:
            return Choice(strategy.name, *chunks)
    chunk, _ = _trial(strategy, site, slice_, request, math.inf)
    reason = f"strategy {strategy.name} ({strategy.summary}), {chunk} points together"
    return Choice(strategy.name, chunk, reason)


def _candidates(site: Site, slice_: Slice, seconds: float, points: int) -> Iterator[Strategy]:
    """Yield the strategies that may be faster than plain, the likeliest first."""
    for strategy in STRATEGIES.values():
        if not strategy.refusal(site, slice_) and strategy.promises(site, seconds, points):
            yield strategy


def _plain_seconds(site: Site, slice_: Slice, request: Request) -> float:
    sweep = Plain().prepare(site, slice_)
    return min(_timed(sweep, request.sizes[:1]) for _ in range(TRIALS - 1))


def _timed(sweep: Sweep, sizes: np.ndarray) -> float:
    started = time.perf_counter()
    sweep.evaluate(sizes)
    return (time.perf_counter() - started) / max(len(sizes), 1)


def _trial(
    strategy: Strategy, site: Site, slice_: Slice, request: Request, seconds: float
) -> tuple[int, float]:
    """Return the best chunk and its seconds a point; infinity where the strategy fails.

    On the plain path, a point takes `seconds`.
    """
    affordable = int(request.points * TRIAL_SHARE / TRIALS / site.threads)
    repeats = max(1, min(REPEATS, int(TRIAL_SECONDS / seconds), affordable))
    trial = partial(_chunk_seconds, strategy, site, slice_, request.sizes, repeats)
    if request.chunk is not None:
        return _halved_to_fit(max(strategy.chunks(site, request.chunk)), trial)
    best_chunk, best_seconds, misses = 1, math.inf, 0
    for chunk in strategy.chunks(site, _most(site, request)):
        if best_seconds < math.inf and not _affordable(site, chunk, request):
            break
        taken = trial(chunk)
        misses = 0 if taken < best_seconds * GROWTH_ADVANTAGE else misses + 1
        if taken < best_seconds:
            best_chunk, best_seconds = chunk, taken
        if misses == MISSES or not math.isfinite(taken):
            break
    return best_chunk, best_seconds


def _affordable(site: Site, chunk: int, request: Request) -> bool:
    """Whether trying a chunk is little beside the points of the run."""
    return TRIALS * chunk * free_lanes(site, chunk) <= request.points * TRIAL_SHARE


def _halved_to_fit(chunk: int, trial: Callable[[int], float]) -> tuple[int, float]:
    """Return the chunk that was asked for, or what of it fits the memory, and its seconds."""
    while True:
        seconds = trial(chunk)
        if chunk == 1 or math.isfinite(seconds):
            return chunk, seconds
        chunk //= 2


def _chunk_seconds(
    strategy: Strategy, site: Site, slice_: Slice, sizes: np.ndarray, repeats: int, chunk: int
) -> float:
    """Return the seconds a point in the fastest of some trials, after a first one and its check.

    A trial is a chunk in every lane; where points go side by side, `repeats` of them in each.
    """
    lanes = free_lanes(site, chunk)
    count = chunk * (lanes if chunk > site.threads else repeats)
    tiled = np.resize(sizes, (count, *sizes.shape[1:]))
    sweep = CheckedSweep(strategy, site, slice_, chunk=chunk, tell=lambda _: None)
    sweep.evaluate(tiled)
    if sweep.failed or sweep.chunk < chunk:
        return math.inf
    return min(_timed(sweep, tiled) for _ in range(TRIALS - 1))


def _most(site: Site, request: Request) -> int:
    """Return how many points together the memory and the line allow."""
    room = int(MEMORY_SHARE * available_bytes(site.parameters.device) / point_bytes(site))
    return max(1, min(LARGEST_CHUNK, room // free_lanes(site, room), request.line_points))


def point_bytes(site: Site) -> int:
    """Return the memory that one more point in a chunk takes, roughly, from one evaluation."""
    kept = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        site.objective.value_and_gradient()
    weights = sum(t.numel() * t.element_size() for t in site.parameters.tensors)
    return 2 * kept + 4 * weights
