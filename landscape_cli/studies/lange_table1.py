"""Time of one epoch with BN and with BNP, as a ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from landscape_cli.studies.contests import Method
from landscape_cli.studies.contract import Claim, Findings
from landscape_cli.studies.estimates import Estimate, ratio_over_seeds
from landscape_cli.studies.lange import PAPER, bn, bnp, dense

if TYPE_CHECKING:
    from landscape_cli.figures.document import Section
    from landscape_cli.studies.workbench import Images, Trained, Workbench

SOURCE = f"{PAPER}, Table 1"
PUBLISHED = {16: (16.08, 16.69), 256: (10.81, 10.70), 512: (10.67, 10.57)}
"""Seconds per epoch of BN and BNP, by mini-batch size."""
CLOSE = 1.25
"""Ratio up to which two times are quite comparable."""
MACHINE = (
    "The published times are of an NVIDIA Tesla V100 with CIFAR10. Times on another machine and "
    "with other data compare as ratios at most: with a network this small they are those of many "
    "small calls, of which BNP makes more than BN's one layer."
)

Times = dict[int, tuple[list[float], list[float]]]
"""Seconds per epoch of BN and BNP by mini-batch size, one per repetition."""


@dataclass(frozen=True)
class EpochTimes:
    """Table 1: two hidden layers of 100 units, mini-batches of 16, 256 and 512."""

    name: str = "lange-table1"
    title: str = "Time of one epoch with BN and with BNP"
    source: str = SOURCE

    def run(self, bench: Workbench) -> Findings:
        """Time both methods in turns, so that what else the machine does meets both."""
        images = bench.images("cifar10")
        trained = {size: _train(bench, images, size) for size in PUBLISHED}
        times = {size: _times(bench, *pair) for size, pair in trained.items()}
        _probe(bench, trained[16])
        ratios = {size: ratio_over_seeds(theirs, ours) for size, (ours, theirs) in times.items()}
        claims = [
            *(_faster_claim(size, ratio) for size, ratio in ratios.items()),
            *(_close_claim(size, ratio) for size, ratio in ratios.items()),
        ]
        return Findings(claims, [_section(times, ratios)], (MACHINE,))


def _train(bench: Workbench, images: Images, size: int) -> tuple[list[Trained], list[Trained]]:
    """Train in turns; the first repetition is only for what is done once, and not counted."""
    pairs = [
        [_repeat(bench, images, size, (method, seed)) for method in (bn(bench, 0.1), bnp(0.1))]
        for seed in (bench.seeds[-1] + 1, *bench.seeds)
    ]
    ours, theirs = zip(*pairs[1:], strict=True)
    return list(ours), list(theirs)


def _repeat(bench: Workbench, images: Images, size: int, one: tuple[Method, int]) -> Trained:
    """Train without evaluations, and record the first and the last weights only."""
    method, seed = one
    return bench.train(
        f"{size}-{method.key}-{seed}",
        f"{dense(images, '100,100')}&{method.style}&seed={seed}",
        images.train,
        optimizer=method.optimizer,
        lr=method.lr,
        batch_size=size,
        epochs=_epochs(bench),
        every=10**9,
        seed=seed,
    )


def _epochs(bench: Workbench) -> int:
    return bench.choose(smoke=1, laptop=20, paper=20)


def _times(
    bench: Workbench, ours: Sequence[Trained], theirs: Sequence[Trained]
) -> tuple[list[float], list[float]]:
    per_epoch = [[trained.wall_seconds / _epochs(bench) for trained in g] for g in (ours, theirs)]
    return per_epoch[0], per_epoch[1]


def _probe(bench: Workbench, pair: tuple[list[Trained], list[Trained]]) -> None:
    """Probe what was timed, so that it is known that both trained."""
    steps = bench.choose(smoke="0.5:4:3", laptop="0.5:4:8", paper="0.5:4:16")
    for group in pair:
        bench.probe(group[0].name, group[0], batch_size=256, steps=steps)


def _faster_claim(size: int, ratio: Estimate) -> Claim:
    ours, theirs = PUBLISHED[size]
    slower = theirs > ours
    holds = ratio.above(1.0) if slower else ratio.below(1.0)
    what = "BN is faster than BNP" if slower else "BNP has a tiny improvement over BN"
    return Claim(
        claim=f"with mini-batches of {size} {what}",
        source=SOURCE,
        expected=f"time of BNP over BN {'above' if slower else 'below'} 1 "
        f"(published: {theirs / ours:.3f})",
        observed=f"ratio {ratio}",
        holds=holds,
        interval=ratio.interval,
        explanation="" if holds else MACHINE,
    )


def _close_claim(size: int, ratio: Estimate) -> Claim:
    holds = ratio.within(1 / CLOSE, CLOSE)
    return Claim(
        claim=f"with mini-batches of {size} the two are quite comparable in time",
        source=f"{PAPER}, §5.1",
        expected=f"time of BNP over BN from {1 / CLOSE:g} to {CLOSE:g}",
        observed=f"ratio {ratio}",
        holds=holds,
        interval=ratio.interval,
        explanation="" if holds else MACHINE,
    )


def _section(times: Times, ratios: dict[int, Estimate]) -> Section:
    from landscape_cli.figures.document import Section, Table
    from landscape_cli.studies.estimates import mean_over_seeds
    from landscape_cli.studies.seed_curves import draw_over_seeds

    rows = [
        (
            size,
            str(mean_over_seeds(times[size][0])),
            str(mean_over_seeds(times[size][1])),
            str(ratio),
            "{:.2f} and {:.2f}".format(*PUBLISHED[size]),
            PUBLISHED[size][1] / PUBLISHED[size][0],
        )
        for size, ratio in ratios.items()
    ]
    columns = ("mini-batch", "BN", "BNP", "BNP over BN", "published", "published ratio")
    caption = "Seconds per epoch; repetitions alternate between the two methods."
    drawn = {
        label: np.array([times[size][place] for size in times]).T
        for place, label in enumerate(("BN", "BNP"))
    }
    sizes = np.array(list(times), dtype=float)
    title = "Time of one epoch against the mini-batch size"
    return Section(
        "Average time over one epoch",
        tables=[Table(columns, rows, caption)],
        figures=[draw_over_seeds(title, ("mini-batch size", sizes), ("seconds", drawn))],
    )


STUDY = EpochTimes()
