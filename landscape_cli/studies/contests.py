"""Methods trained against each other on the same data, batch by batch, as Lange et al. do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from landscape_cli.errors import MeasurementError
from landscape_cli.studies.contract import Claim, Findings
from landscape_cli.studies.estimates import Estimate, mean_over_seeds

if TYPE_CHECKING:
    from landscape_cli.figures.document import Section
    from landscape_cli.runs import Run
    from landscape_cli.studies.workbench import Trained, Workbench

Part = Literal["early", "final"]
Relation = Literal["higher", "lower", "comparable"]

EVALUATIONS = 20
"""Held-out accuracies of a training, evenly spaced."""
EARLY, FINAL = 0.25, 0.8
"""``early`` is up to the first share of the steps, ``final`` from the second one on."""
COMPARABLE = 0.02
"""Accuracies up to so far apart are comparable."""
SLOW_START = (
    "The running mean and variance of BNP start from 0 and 1, and at ρ = 0.99 they have a weight "
    "of {weight:.2g} left on that at the end of the first quarter, which is {steps} steps long "
    "here."
)
"""What is known of BNP's beginning in trainings that are shorter than the published ones."""


@dataclass(frozen=True)
class Method:
    """One line of a panel.

    Attributes:
        label: as the legend has it.
        lr: the published learning rate.
        style: options of the model: the norm and what belongs to it.
        optimizer: as `TrainingSpec` has it.
        settings: further fields of `TrainingSpec`.
        may_refuse: whether not to train at all is one of the things that are expected of it.
    """

    label: str
    lr: float
    style: str = "norm=none"
    optimizer: str = "sgd"
    settings: Mapping[str, Any] = field(default_factory=dict)
    may_refuse: bool = False

    @property
    def key(self) -> str:
        """The label as part of a file name."""
        return "".join(c if c.isalnum() else "-" for c in self.label.lower()).strip("-")


@dataclass(frozen=True)
class Contrast:
    """One published statement about two methods of a panel.

    Attributes:
        claim: as published.
        first: label of what is held against.
        other: label of what is held against it.
        part: ``early`` asks who converges faster, ``final`` who ends higher.
        relation: of the held-out accuracy of `other` to that of `first`.
    """

    claim: str
    first: str
    other: str
    part: Part
    relation: Relation

    def judge(self, outcome: Outcome, source: str) -> Claim:
        """Hold the statement against what was trained."""
        gain = outcome.gain(self.first, self.other, self.part)
        holds = self._holds(gain)
        known = "" if holds else outcome.slow_start((self.first, self.other), self.part)
        when = "the first quarter" if self.part == "early" else "the last fifth"
        wanted = {
            "higher": "above 0",
            "lower": "below 0",
            "comparable": f"from {-COMPARABLE} to {COMPARABLE}",
        }
        return Claim(
            claim=self.claim,
            source=source,
            expected=f"held-out accuracy over {when} of training, {self.other} less {self.first}, "
            f"{wanted[self.relation]}",
            observed=f"difference {gain}; {outcome.described(self.other, self.part)}, "
            f"{outcome.described(self.first, self.part)}",
            holds=holds,
            interval=gain.interval,
            explanation=" ".join(
                filter(None, (known, outcome.divergences((self.first, self.other))))
            ),
        )

    def _holds(self, gain: Estimate) -> bool | None:
        if self.relation == "higher":
            return gain.above(0.0)
        if self.relation == "lower":
            return gain.below(0.0)
        return gain.within(-COMPARABLE, COMPARABLE)


@dataclass(frozen=True)
class Contest:
    """One panel of a figure.

    Attributes:
        name: within the study, part of the names of its trainings.
        title: what the panel shows.
        model: spec of the network with options, before style and seed.
        data: specs of the part to train on and of the held-out part.
        methods: what is trained.
        contrasts: what was published about them.
        steps: updates, a multiple of 20.
        batch_size: samples in a batch.
        source: where the panel was published.
        settings: further fields of `TrainingSpec`, of all methods.
    """

    name: str
    title: str
    model: str
    data: tuple[str, str]
    methods: tuple[Method, ...]
    contrasts: tuple[Contrast, ...]
    steps: int
    batch_size: int
    source: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def every(self) -> int:
        """Updates between two evaluations."""
        return max(1, self.steps // EVALUATIONS)

    @property
    def evaluated(self) -> np.ndarray:
        """The steps with a held-out accuracy, but for the first, shape (N,)."""
        return np.arange(self.every, self.steps + 1, self.every)

    def hold(self, bench: Workbench) -> Outcome:
        """Train every method with every seed; one that cannot make a step is noted down."""
        trainings: dict[str, list[Trained]] = {}
        refusals: dict[str, str] = {}
        for method in self.methods:
            try:
                group = [self._train(bench, method, seed) for seed in bench.seeds]
            except MeasurementError as error:
                if not method.may_refuse:
                    raise
                refusals[method.label] = f"{error.what}: {error.seen}"
            else:
                trainings[method.label] = group
        return Outcome(self, trainings, refusals)

    def _train(self, bench: Workbench, method: Method, seed: int) -> Trained:
        train, test = self.data
        settings: dict[str, Any] = {
            "test_data": test,
            "steps": self.steps,
            "every": self.every,
            "batch_size": self.batch_size,
            "lr": method.lr,
            "optimizer": method.optimizer,
            "seed": seed,
            **self.settings,
            **method.settings,
        }
        name = f"{self.name}-{method.key}-{seed}"
        return bench.train(name, f"{self.model}&{method.style}&seed={seed}", train, **settings)


@dataclass(frozen=True)
class Outcome:
    """What a contest led to.

    Attributes:
        contest: its panel.
        trainings: by label, one per seed.
        refusals: by label, why a method could not be trained at all.
    """

    contest: Contest
    trainings: Mapping[str, Sequence[Trained]]
    refusals: Mapping[str, str]

    def accuracies(self, label: str) -> np.ndarray:
        """Return the held-out accuracies, shape (seed, N).

        Where a training ended early, because its loss was not finite, its last weights stay.
        """
        return np.array([self._held(trained) for trained in self.trainings[label]])

    def _held(self, trained: Trained) -> np.ndarray:
        steps = trained.history["step"]
        values = trained.history["test_accuracy"]
        known = np.isfinite(values)
        places = np.searchsorted(steps[known], self.contest.evaluated, side="right") - 1
        return np.asarray(values[known][places])

    def over(self, label: str, part: Part) -> np.ndarray:
        """Return the mean held-out accuracy over a part of the training, shape (seed,)."""
        steps = self.contest.evaluated
        early = steps <= max(EARLY * self.contest.steps, steps[0])
        chosen = early if part == "early" else steps > FINAL * self.contest.steps
        return np.asarray(self.accuracies(label)[:, chosen].mean(axis=1))

    def gain(self, first: str, other: str, part: Part) -> Estimate:
        """Return the accuracy of `other` less that of `first`, paired by seed."""
        return mean_over_seeds((self.over(other, part) - self.over(first, part)).tolist())

    def described(self, label: str, part: Part) -> str:
        """Return a method's mean accuracy in words."""
        return f"{label} {self.over(label, part).mean():.3f}"

    def divergences(self, labels: Sequence[str] | None = None) -> str:
        """Return in a sentence which trainings ended in a loss that is not finite."""
        counts = {
            label: sum(trained.diverged_at is not None for trained in self.trainings[label])
            for label in (labels or self.trainings)
        }
        parts = [f"{label}: {count}" for label, count in counts.items() if count]
        if not parts:
            return ""
        return f"Trainings that ended in a loss that is not finite: {', '.join(parts)}."

    def slow_start(self, labels: Sequence[str], part: Part) -> str:
        """Return what is known of BNP's first steps, where a comparison is about them."""
        steps = round(EARLY * self.contest.steps)
        optimizers = [m.optimizer for m in self.contest.methods if m.label in labels]
        if part != "early" or "bnp" not in optimizers or 0.99**steps < 1e-3:
            return ""
        return SLOW_START.format(weight=0.99**steps, steps=steps)

    def losses(self, label: str) -> np.ndarray:
        """Return the mean training loss between evaluations, shape (seed, N)."""
        return np.array([self._windows(trained) for trained in self.trainings[label]])

    def _windows(self, trained: Trained) -> np.ndarray:
        every, count = self.contest.every, len(self.contest.evaluated)
        losses = np.full(every * count, np.nan)
        found = trained.losses[: len(losses)]
        losses[: len(found)] = found
        return np.asarray(losses.reshape(count, every).mean(axis=1))


@dataclass(frozen=True)
class ContestStudy:
    """A figure whose panels are contests.

    Attributes:
        name: of the study.
        title: one line.
        source: authors, year, figure.
        contests: makes the panels for a preset.
        further: makes claims that are about more than two methods' accuracies.
        notes: what is not as published.
    """

    name: str
    title: str
    source: str
    contests: Callable[[Workbench], Sequence[Contest]]
    further: Callable[[Sequence[Outcome]], list[Claim]] | None = None
    notes: tuple[str, ...] = ()

    def run(self, bench: Workbench) -> Findings:
        """Train all, judge, and probe the trajectories of the first seed."""
        outcomes = [contest.hold(bench) for contest in self.contests(bench)]
        claims = [
            contrast.judge(outcome, outcome.contest.source)
            for outcome in outcomes
            for contrast in outcome.contest.contrasts
        ]
        if self.further is not None:
            claims += self.further(outcomes)
        sections = [_section(outcome, probe_methods(bench, outcome)) for outcome in outcomes]
        return Findings(claims, sections, self.notes)


def probe_methods(bench: Workbench, outcome: Outcome) -> dict[str, Run]:
    """Probe every method's trajectory, of the first seed, at a few checkpoints."""
    return {
        label: bench.probe(
            group[0].name,
            group[0],
            at=few(group[0].checkpoints, bench.choose(smoke=2, laptop=5, paper=11)),
            batch_size=128,
            steps=bench.choose(smoke="0.5:4:3", laptop="0.5:4:8", paper="0.5:4:16"),
        )
        for label, group in outcome.trainings.items()
    }


def few(items: Sequence[Any], count: int) -> list[Any]:
    """Return `count` items, evenly spaced, the first and the last among them."""
    places = np.unique(np.round(np.linspace(0, len(items) - 1, min(count, len(items)))))
    return [items[int(place)] for place in places]


def _section(outcome: Outcome, runs: Mapping[str, Run]) -> Section:
    from landscape_cli.figures.document import Panel, Section
    from landscape_cli.figures.smoothness import draw_smoothness
    from landscape_cli.studies.contest_figures import draw_contest, table_of

    smoothness = draw_smoothness(list(runs.values()), labels=list(runs), direction="gradient")
    drawn = "Means over the seeds; the shaded regions are their ranges."
    probed = "Along the gradient from a few checkpoints of the first seed."
    return Section(
        outcome.contest.title,
        figures=[
            Panel(draw_contest(outcome), drawn),
            Panel(smoothness, probed, title="Effective β-smoothness"),
        ],
        tables=[table_of(outcome)],
        notes=[f"{label}: {reason}" for label, reason in outcome.refusals.items()],
    )
