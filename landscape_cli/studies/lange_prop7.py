"""One step of BN without gradients through the statistics is one step of BNP, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from landscape_cli.studies.contract import Claim, Findings
from landscape_cli.studies.estimates import Estimate, ratio_over_seeds
from landscape_cli.studies.lange import PAPER, dense

if TYPE_CHECKING:
    from landscape_cli.figures.document import Section
    from landscape_cli.runs import Run
    from landscape_cli.studies.workbench import Images, Trained, Workbench

SOURCE = f"{PAPER}, Proposition 7"
BATCH = 60
LR = 0.1
ROUNDING = 1e-10
"""Relative difference that rounding explains: 10⁻¹⁶ times condition numbers of 10² to 10⁵."""
VISIBLE = 1e-3
"""Relative difference that it does not."""
NORM = "norm=batch&norm_affine=False&norm_eps=0"
LEFT_OUT = (
    "The first layer sees the data as they are, not normalised, so that the proposition says "
    "nothing of it: it is left out. BNP has the batch's own statistics, ε₁ = ε₂ = 0 and q² = 1."
)
CONSTANT = (
    "A hidden unit that is constant over the batch, σ = 0, cannot be normalised. With ReLU there "
    "are some; they add nothing to the outputs on that batch and are taken out beforehand."
)


@dataclass(frozen=True)
class Differences:
    """Relative differences at one checkpoint.

    Attributes:
        outputs: of the BN network and its plain twin on the batch.
        step: of a step of BN, no gradient through its statistics, and of BNP on the twin.
        through: the same with the gradient passing through the statistics.
        next_outputs: of the outputs on another batch, nothing updated.
        constant: hidden units with σ = 0 on the batch, taken out of the network beforehand.
    """

    outputs: float
    step: float
    through: float
    next_outputs: float
    constant: int


@dataclass(frozen=True)
class Proposition7:
    """Proposition 7, held against networks before and after some training."""

    name: str = "lange-prop7"
    title: str = "One step of BN without gradients through its statistics is one step of BNP"
    source: str = SOURCE

    def run(self, bench: Workbench) -> Findings:
        """Train BN networks, and compare the steps at their first and last checkpoints."""
        images = bench.images("mnist")
        trained = [_train(bench, images, seed) for seed in bench.seeds]
        runs = [_probe(bench, *pair) for pair in zip(bench.seeds, trained, strict=True)]
        found = [
            [compare(images, one, place, seed) for place in (0, -1)]
            for seed, one in zip(bench.seeds, trained, strict=True)
        ]
        sections = [_table(found), _landscape(runs, bench.seeds)]
        return Findings(_claims(found), sections, (LEFT_OUT, CONSTANT))


def _train(bench: Workbench, images: Images, seed: int) -> Trained:
    steps = bench.choose(smoke=4, laptop=100, paper=1_000)
    return bench.train(
        f"batch-{seed}",
        f"{dense(images, '100,100')}&{NORM}&seed={seed}",
        images.train,
        batch_size=BATCH,
        lr=LR,
        steps=steps,
        every=steps,
        seed=seed,
        dtype="float64",
    )


def _probe(bench: Workbench, seed: int, trained: Trained) -> Run:
    return bench.probe(
        trained.name,
        trained,
        batch_size=BATCH,
        dtype="float64",
        norm_mode="frozen",
        seed=seed,
        steps=bench.choose(smoke="0.5:4:3", laptop="0.5:4:8", paper="0.5:4:16"),
    )


def compare(images: Images, trained: Trained, place: int, seed: int) -> Differences:
    """Return the differences at one checkpoint of a training.

    Args:
        images: two batches of them are drawn.
        trained: of a network with BatchNorm, ε = 0, no scale and no shift.
        place: of the checkpoint among those of the training.
        seed: draws the batches.
    """
    import torch

    from landscape_cli import batches, checkpoints, losses
    from landscape_cli.adapters.building import build_data, build_model
    from landscape_cli.studies import twins
    from landscape_cli.training.evaluation import place as placed

    whole: Any = build_model(trained.model).double()
    checkpoints.load_into(whole, checkpoints.read(trained.checkpoints[place]))
    sample = batches.draw(build_data(trained.data), BATCH, 2, seed)
    batch, later = (placed(raw, whole, whole=False) for raw in sample.batches)
    kept = twins.Statistics.of(whole, batch).varies()
    layers = twins.without_units(twins.layers_of(whole), kept)
    widths = ",".join(str(int(units.sum())) for units in kept)
    loss = losses.resolve(trained.loss, whole)

    model: Any = build_model(f"{dense(images, widths)}&{NORM}").double()
    twin: Any = build_model(f"{dense(images, widths)}&norm=none").double()
    statistics = twins.Statistics.of(twins.filled(model, layers), batch)
    start = statistics.fold(layers)
    twins.filled(twin, start)
    gaps = []
    for one in (batch, later):
        ours = twins.outputs(model, one)
        gap = torch.linalg.vector_norm(ours - twins.outputs(twin, one))
        gaps.append(float(gap / torch.linalg.vector_norm(ours)))
    of_bnp = twins.stepped_by_bnp(twin, batch, loss, LR)
    frozen, through = (
        twins.farthest(of_bnp, statistics.fold(stepped), start)
        for stepped in (
            twins.stepped_by_descent(model, batch, loss, LR, "frozen"),
            twins.stepped_by_descent(model, batch, loss, LR, "batch"),
        )
    )
    constant = sum(int((~units).sum()) for units in kept)
    return Differences(gaps[0], frozen, through, gaps[1], constant)


Found = Sequence[Sequence[Differences]]


def _extreme(found: Found, name: str, *, equal: bool) -> Estimate:
    """Return a difference over seeds; of the checkpoints the one that fits the claim least."""
    least = max if equal else min
    values = [least(getattr(one, name) for one in pair) for pair in found]
    return ratio_over_seeds(values, [1.0] * len(values))


def _claims(found: Found) -> list[Claim]:
    equal = (
        ("a post-activation BN network is a plain network with Ŵ = W/σ, b̂ = b − Wμ/σ", "outputs"),
        ("one step of BN, no gradient passing through μ and σ, is one step of BNP", "step"),
    )
    unequal = (
        ("the gradient must not pass through μ and σ: with it the steps differ", "through"),
        (
            "a new mini-batch changes the BN network without any update",
            "next_outputs",
        ),
    )
    return [
        *(_claim(text, _extreme(found, name, equal=True), equal=True) for text, name in equal),
        *(_claim(text, _extreme(found, name, equal=False), equal=False) for text, name in unequal),
    ]


def _claim(text: str, difference: Estimate, *, equal: bool) -> Claim:
    level = f"below {ROUNDING:g}" if equal else f"above {VISIBLE:g}"
    return Claim(
        claim=text,
        source=SOURCE if equal else f"{PAPER}, §3.4",
        expected=f"relative difference {level}",
        observed=f"difference {difference}",
        holds=difference.below(ROUNDING) if equal else difference.above(VISIBLE),
        interval=difference.interval,
    )


def _table(found: Found) -> Section:
    from landscape_cli.figures.document import Section, Table

    rows = [
        (seed, when, one.outputs, one.step, one.through, one.next_outputs, one.constant)
        for seed, pair in enumerate(found)
        for when, one in zip(("initial", "trained"), pair, strict=True)
    ]
    compared = ("outputs", "step", "step, gradient through μ, σ", "other batch")
    columns = ("seed", "weights", *compared, "constant units")
    caption = "Relative differences of the BN network and its plain twin, in float64."
    return Section("BN and BNP", tables=[Table(columns, rows, caption)])


def _landscape(runs: Sequence[Run], seeds: Sequence[int]) -> Section:
    from landscape_cli.figures.document import Section
    from landscape_cli.figures.line import draw_line

    figure = draw_line(runs, labels=[f"seed {seed}" for seed in seeds])
    text = "The BN networks with their statistics held fixed, along the gradient."
    return Section("Along the step", text, figures=[figure])


STUDY = Proposition7()
