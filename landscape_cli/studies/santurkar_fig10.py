"""How fast gradients change with the distance moved along them, with and without BatchNorm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from landscape_cli.studies.contract import Claim, Findings
from landscape_cli.studies.estimates import Estimate, ratio_over_seeds
from landscape_cli.studies.landscapes import PAPER, by_seed
from landscape_cli.studies.networks import (
    LABELS,
    Network,
    Runs,
    deep_linear,
    probe_each,
    train_each,
    vgg,
)

if TYPE_CHECKING:
    from landscape_cli.figures.document import Section
    from landscape_cli.runs import Run
    from landscape_cli.studies.workbench import Trained, Workbench

NORMS = ("none", "batch")
RATES = "learning_rate_range"
POINTS = 16
"""Distances, evenly spaced on a log scale, at which two curves are held against each other."""
CAPTION = (
    "Every curve is one checkpoint, against the distance moved rather than the step size, which "
    "the length of the gradient would confound. Ratios are over the distances that both curves "
    "reach."
)


class Predictiveness:
    """Fig. 10: at equal distance gradients change less with BatchNorm."""

    name = "santurkar-fig10"
    title = "Predictiveness of gradients against the distance moved"
    source = f"{PAPER}, Fig. 10"

    def run(self, bench: Workbench) -> Findings:
        """Train both networks, probe along the gradient, and descend from initialisation."""
        claims: list[Claim] = []
        sections: list[Section] = []
        wide = bench.choose(smoke=6, laptop=16, paper=24)
        for panel, network in zip("ab", (vgg(bench), deep_linear(bench)), strict=True):
            trainings = train_each(bench, network, NORMS)
            runs = probe_each(bench, network, trainings, steps=f"0.01:30:{wide}")
            rates = {norm: _descend(bench, network, trainings[norm]) for norm in NORMS}
            where = f"{self.source}{panel}"
            claims += [_distance_claim(runs, network.name, where), _rates_claim(rates, network)]
            sections.append(_section(runs, rates, f"Fig. 10{panel}: {network.name}"))
        return Findings(claims, sections)


def _descend(bench: Workbench, network: Network, group: list[Trained]) -> list[Run]:
    """Measure from initialisation which learning rates gradient descent survives."""
    iterations = bench.choose(smoke=3, laptop=20, paper=100)
    return [
        bench.probe(
            f"{trained.name}-rates",
            trained,
            at=trained.checkpoints[:1],
            seed=seed,
            measures=(f"{RATES}?iterations={iterations}",),
            **{
                **network.probing,
                "steps": f"0.01:1000:{bench.choose(smoke=6, laptop=21, paper=41)}",
            },
        )
        for seed, trained in zip(bench.seeds, group, strict=True)
    ]


def distance_ratio(first: Run, other: Run) -> float:
    """Return ‖Δg‖ of `other` over `first` at equal distance: geometric mean over checkpoints.

    Between probed points log ‖Δg‖ is taken to be linear in log distance. Checkpoints at which
    the distances do not overlap are left out.
    """
    steps = np.intersect1d(first["training_step"], other["training_step"])
    logs = [_log_ratio(_curve(first, step), _curve(other, step)) for step in steps]
    finite = [value for value in logs if np.isfinite(value)]
    return float(np.exp(np.mean(finite))) if finite else float("nan")


def _curve(run: Run, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return log distance and log ‖Δg‖ at a training step, ascending, finite only."""
    place = int(np.flatnonzero(run["training_step"] == step)[0])
    distance, change = (run[name][place, 0] for name in ("distance", "gradient_change"))
    usable = np.isfinite(distance) & np.isfinite(change) & (distance > 0) & (change > 0)
    order = np.argsort(distance[usable])
    return np.log(distance[usable][order]), np.log(change[usable][order])


def _log_ratio(first: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> float:
    if not len(first[0]) or not len(other[0]):
        return float("nan")
    low, high = max(first[0][0], other[0][0]), min(first[0][-1], other[0][-1])
    if not low < high:
        return float("nan")
    places = np.linspace(low, high, POINTS)
    return float((np.interp(places, *other) - np.interp(places, *first)).mean())


def _distance_claim(runs: Runs, name: str, source: str) -> Claim:
    pairs = list(zip(runs["none"], runs["batch"], strict=True))
    ratio = ratio_over_seeds([distance_ratio(*pair) for pair in pairs], [1.0] * len(pairs))
    return Claim(
        claim=f"{name}: gradients are significantly more predictive with BatchNorm, and change "
        "slowly in a given local neighbourhood",
        source=source,
        expected=f"‖Δg‖ of {LABELS['batch']} over {LABELS['none']} at equal distance below 1",
        observed=f"ratio {ratio}",
        holds=ratio.below(1.0),
        interval=ratio.interval,
        explanation=_gradient_lengths(runs),
    )


def _gradient_lengths(runs: Runs) -> str:
    """Return how much longer the gradients themselves are, which ‖Δg‖ scales with."""
    lengths = [
        [float(np.exp(np.mean(np.log(run["gradient_norm"])))) for run in runs[norm]]
        for norm in NORMS
    ]
    ratio = ratio_over_seeds(lengths[1], lengths[0])
    return f"The gradients ‖g‖ themselves have the ratio {ratio}."


def _rates_claim(rates: Runs, network: Network) -> Claim:
    ratio = _width_ratio(rates)
    return Claim(
        claim=f"{network.name}: networks with BatchNorm are largely robust to a broad range of "
        "learning rates",
        source=f"{PAPER}, §3.1 and Fig. 10",
        expected="highest learning rate that descent from initialisation survives, with "
        "BatchNorm over without, above 1",
        observed=f"ratio {ratio}",
        holds=ratio.above(1.0),
        interval=ratio.interval,
        explanation=_ends(rates),
    )


def _width_ratio(rates: Runs) -> Estimate:
    none, batch = ([float(run[f"{RATES}/highest"][0]) for run in rates[norm]] for norm in NORMS)
    return ratio_over_seeds(batch, none)


def _ends(rates: Runs) -> str:
    """Return where the ranges end at the grid itself, and are wider than was seen."""
    parts = []
    for norm in NORMS:
        top = sum(run[f"{RATES}/highest"][0] == run["step_multiple"][-1] for run in rates[norm])
        if top:
            parts.append(f"{LABELS[norm]}: {top} of {len(rates[norm])} seeds")
    return (
        f"Survived the largest rate that was tried, so that the range is wider: {', '.join(parts)}."
        if parts
        else ""
    )


def _section(runs: Runs, rates: Runs, title: str) -> Section:
    from landscape_cli.figures.distance import draw_distance
    from landscape_cli.figures.document import Panel, Section
    from landscape_cli.figures.learning_rate_range import draw_learning_rate_range

    labels = [LABELS[norm] for norm in rates]
    ranges = {
        str(seed): draw_learning_rate_range(list(group), labels=labels)
        for seed, group in enumerate(zip(*rates.values(), strict=True))
    }
    distances = by_seed(draw_distance, runs)
    return Section(
        title,
        CAPTION,
        [
            Panel(distances, "", "seed", "Gradient change against distance"),
            Panel(ranges, "", "seed", "Descent from initialisation"),
        ],
    )


STUDY = Predictiveness()
