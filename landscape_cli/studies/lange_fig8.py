"""Condition numbers of the Hessian of one unit, as it is and behind the BNP preconditioner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from landscape_cli.studies.contests import Contest, Contrast, Outcome, few
from landscape_cli.studies.contract import Claim, Findings
from landscape_cli.studies.estimates import mean_over_seeds, ratio_over_seeds
from landscape_cli.studies.lange import NOTES, PAPER, bnp, dense, vanilla

if TYPE_CHECKING:
    from landscape_cli.figures.document import Section
    from landscape_cli.runs import Run
    from landscape_cli.studies.workbench import Workbench

SOURCE = f"{PAPER}, §5.1 and Fig. 8"
UNIT = "conditioning?layers=output&units=1"
"""The first unit of the output layer, ŵ = (bias, 100 weights)."""
SPREAD = (1e2, 1e5)
"""Range of κ(D) that the text reads off the published figure."""
MUCH = 0.1
"""Ratio below which a condition number is significantly reduced."""
ROUGHLY = 10.0
"""Factor up to which two numbers are roughly the same."""
FASTER = Contrast("BNP converges faster than vanilla", "vanilla", "BNP", "early", "higher")
RANK = (
    "With batches of 60 the Hessian of 101 weights has at most 60 eigenvalues that are not zero; "
    "condition numbers are over those."
)


@dataclass(frozen=True)
class ConditionNumbers:
    """Fig. 8: a network trained with and without BNP, and κ along the plain training."""

    name: str = "lange-fig8"
    title: str = "Condition numbers of the Hessian with and without the BNP preconditioner"
    source: str = f"{PAPER}, Fig. 8"

    def run(self, bench: Workbench) -> Findings:
        """Train, measure the output layer's first unit on one batch, and judge."""
        outcome = _contest(bench).hold(bench)
        runs = {label: _probe(bench, outcome, label) for label in outcome.trainings}
        plain = runs["vanilla"]
        claims = [
            FASTER.judge(outcome, f"{SOURCE}, left"),
            _reduction_claim(plain),
            _spread_claim(plain),
            _square_claim(plain),
        ]
        return Findings(claims, _sections(outcome, runs), NOTES)


def _contest(bench: Workbench) -> Contest:
    images = bench.images("cifar10")
    return Contest(
        name="dense-60",
        title="Fig. 8 left: dense network of two hidden layers",
        model=dense(images, "100,100"),
        data=(images.train, images.test),
        methods=(vanilla(0.01), bnp(0.1)),
        contrasts=(FASTER,),
        steps=bench.choose(smoke=8, laptop=1_000, paper=25_000),
        batch_size=60,
        source=SOURCE,
    )


def _probe(bench: Workbench, outcome: Outcome, label: str) -> list[Run]:
    return [
        bench.probe(
            trained.name,
            trained,
            at=few(trained.checkpoints, bench.choose(smoke=3, laptop=21, paper=21)),
            batch_size=60,
            batches=1,
            steps=bench.choose(smoke="0.5:4:3", laptop="0.5:4:8", paper="0.5:4:16"),
            measures=(UNIT,),
            seed=seed,
        )
        for seed, trained in zip(bench.seeds, outcome.trainings[label], strict=True)
    ]


def typical(run: Run, *names: str) -> list[float]:
    """Return geometric means over the checkpoints where all of several κ are finite."""
    table = np.array([run[f"conditioning/{name}"][:, 0] for name in names])
    finite = np.isfinite(table).all(axis=0)
    if not finite.any():
        return [float("nan")] * len(names)
    means: list[float] = np.exp(np.log(table[:, finite]).mean(axis=1)).tolist()
    return means


def _reduction_claim(runs: Sequence[Run]) -> Claim:
    plain, preconditioned = zip(
        *(typical(run, "hessian", "preconditioned") for run in runs), strict=True
    )
    ratio = ratio_over_seeds(preconditioned, plain)
    return Claim(
        claim="the preconditioning significantly reduces the condition number of the Hessian",
        source=f"{SOURCE}, centre",
        expected=f"κ behind the preconditioner over κ of the Hessian below {MUCH}",
        observed=f"ratio {ratio}",
        holds=ratio.below(MUCH),
        interval=ratio.interval,
        explanation=RANK,
    )


def _spread_claim(runs: Sequence[Run]) -> Claim:
    low, high = SPREAD
    values = [run["conditioning/scaling"][:, 0] for run in runs]
    share = mean_over_seeds([float(((v >= low) & (v <= high)).mean()) for v in values])
    seen = np.concatenate(values)
    return Claim(
        claim="κ(D) is in the range 10² to 10⁵",
        source=f"{SOURCE}, right",
        expected=f"from {low:.0e} to {high:.0e} at more than 0.9 of the checkpoints",
        observed=f"share {share}; from {np.nanmin(seen):.3g} to {np.nanmax(seen):.3g}",
        holds=share.above(0.9),
        interval=share.interval,
        explanation="It is the spread of the standard deviations of the 100 inputs of the unit; "
        "inputs that are 0 for the whole batch are left out.",
    )


def _square_claim(runs: Sequence[Run]) -> Claim:
    found = [typical(run, "hessian", "preconditioned", "scaling") for run in runs]
    reductions = [plain / preconditioned for plain, preconditioned, _ in found]
    ratio = ratio_over_seeds(reductions, [scaling**2 for *_, scaling in found])
    return Claim(
        claim="BNP reduces the condition number by roughly κ(D)²",
        source=f"{SOURCE}, centre and right",
        expected=f"reduction of κ over κ(D)² from {1 / ROUGHLY:g} to {ROUGHLY:g}",
        observed=f"ratio {ratio}",
        holds=ratio.within(1 / ROUGHLY, ROUGHLY),
        interval=ratio.interval,
        explanation="Theorem 4, which relates the two, assumes inputs of full column rank; 60 "
        "examples of 101 inputs have not.",
    )


def _sections(outcome: Outcome, runs: dict[str, list[Run]]) -> list[Section]:
    from landscape_cli.figures.conditioning import draw_conditioning
    from landscape_cli.figures.document import Panel, Section
    from landscape_cli.studies.contest_figures import draw_contest, table_of

    by_seed = {
        f"{seed}": draw_conditioning(list(group), labels=list(runs))
        for seed, group in enumerate(zip(*runs.values(), strict=True))
    }
    return [
        Section(
            "Fig. 8 centre and right",
            figures=[Panel(by_seed, "First unit of the output layer.", "seed", "Conditioning")],
        ),
        Section(outcome.contest.title, figures=[draw_contest(outcome)], tables=[table_of(outcome)]),
    ]


STUDY = ConditionNumbers()
