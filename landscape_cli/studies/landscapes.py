"""The studies of the landscape along the gradient: they differ in network and norms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from landscape_cli.studies.contract import Claim, Findings
from landscape_cli.studies.distributions import histogram_panels
from landscape_cli.studies.networks import LABELS, Network, Runs, Trainings, probe_each, train_each
from landscape_cli.studies.performance import comparable_claim, draw_training, faster_claim
from landscape_cli.studies.smoothness import Pairs, quantity, smoother_claims

if TYPE_CHECKING:
    from landscape_cli.figures.document import Panel, Section
    from landscape_cli.studies.workbench import Workbench

PAPER = "Santurkar et al. (2018)"
SMOOTHER = (
    "along the gradient the loss varies less with {norm}",
    "gradients are more predictive with {norm}: they change less along the step",
    "the effective β-smoothness is better (β* lower) with {norm}",
)


@dataclass(frozen=True)
class LandscapeStudy:
    """Train a network without and with normalisations, and probe along the gradient.

    Attributes:
        name: of the study.
        title: one line.
        figure: of the paper, ``Fig. 4``.
        network: makes the network for a preset.
        norms: what is held against no norm, in the order of the legend.
        against_batch: whether training is held against BatchNorm too.
        directions: that are probed; claims beyond the gradient's are the study's own.
        measures: that are taken on the way.
        further: makes claims that only this figure has.
    """

    name: str
    title: str
    figure: str
    network: Callable[[Workbench], Network]
    norms: tuple[str, ...] = ("batch",)
    against_batch: bool = False
    directions: tuple[str, ...] = ("gradient",)
    measures: tuple[str, ...] = ()
    further: Callable[[Trainings, Runs], list[Claim]] | None = None

    @property
    def source(self) -> str:
        """Where it was published."""
        return f"{PAPER}, {self.figure}"

    def run(self, bench: Workbench) -> Findings:
        """Train every norm with every seed, probe all trajectories, and judge."""
        network = self.network(bench)
        reference = ("batch",) if self.against_batch else ()
        trainings = train_each(bench, network, ("none", *reference, *self.norms))
        asked = {"directions": self.directions, "measures": self.measures}
        runs = probe_each(bench, network, trainings, **asked)
        claims = self._training_claims(trainings) if self.against_batch else []
        panels = [f"{self.source}{letter}" for letter in ("bcd" if self.against_batch else "abc")]
        for norm in self.norms:
            texts = [text.format(norm=LABELS[norm].partition(" + ")[2]) for text in SMOOTHER]
            claims += smoother_claims(Pairs(runs, "none", norm), claims=texts, sources=panels)
        if self.further is not None:
            claims += self.further(trainings, runs)
        return Findings(claims, self._sections(trainings, runs))

    def _training_claims(self, trainings: Trainings) -> list[Claim]:
        claims = []
        for norm in self.norms:
            short = LABELS[norm].partition(" + ")[2]
            claims += [
                faster_claim(
                    trainings,
                    "none",
                    norm,
                    claim=f"training with {short} is faster than without",
                    source=f"{PAPER}, §3.3 and {self.figure}a",
                ),
                comparable_claim(
                    trainings,
                    "batch",
                    norm,
                    claim=f"{short} offers performance comparable to BatchNorm",
                    source=f"{PAPER}, §3.3 and {self.figure}a",
                ),
            ]
        return claims

    def _sections(self, trainings: Trainings, runs: Runs) -> list[Section]:
        from landscape_cli.figures.document import Section

        panels = {"loss": "training loss"}
        if all("accuracy" in trained.history for group in trainings.values() for trained in group):
            panels["accuracy"] = "training accuracy"
        return [
            Section(self.figure, figures=landscape_panels(runs)),
            Section("Ratios to no normalisation", tables=[_ratio_table(runs)]),
            Section("Training", figures=[draw_training(trainings, panels)]),
            *([Section("Activations", figures=histogram_panels(runs))] if self.measures else []),
        ]


def landscape_panels(runs: Runs) -> list[Panel]:
    """Return the figures of bands and of smoothness, with a choice of seed and direction."""
    from landscape_cli.figures.bands import draw_bands
    from landscape_cli.figures.document import Panel
    from landscape_cli.figures.overview import BANDS, SMOOTHNESS
    from landscape_cli.figures.smoothness import draw_smoothness

    titled = (
        (draw_bands, BANDS, "Loss and gradient change"),
        (draw_smoothness, SMOOTHNESS, "Effective β-smoothness"),
    )
    return [Panel(by_seed(draw, runs), caption, "seed", title) for draw, caption, title in titled]


def by_seed(draw: Callable[..., Any], runs: Runs, **options: Any) -> dict[str, Any]:
    """Return one figure per seed and direction, of the runs of all norms with that seed."""
    labels = [LABELS[norm] for norm in runs]
    figures = {}
    for seed, group in enumerate(zip(*runs.values(), strict=True)):
        for direction in group[0].labels("direction"):
            name = f"{seed}" if direction == "gradient" else f"{seed}, {direction}"
            figures[name] = draw(list(group), labels=labels, direction=direction, **options)
    return figures


def _ratio_table(runs: Runs) -> Any:
    from landscape_cli.figures.document import Table

    rows = []
    for norm in [norm for norm in runs if norm != "none"]:
        for direction in runs[norm][0].labels("direction"):
            pairs = Pairs(runs, "none", norm, direction)
            rows.extend(_ratio_rows(pairs, len(runs[norm][0]["checkpoint"])))
    columns = ("norm", "direction", "quantity", "whole training", "first quarter", "last quarter")
    return Table(columns, rows, "Geometric means over checkpoints and seeds; below 1 is smoother.")


def _ratio_rows(pairs: Pairs, count: int) -> list[tuple[str, ...]]:
    quarter = max(1, count // 4)
    parts = (slice(None), slice(0, quarter), slice(-quarter, None))
    return [
        (
            LABELS[pairs.other],
            pairs.direction,
            quantity(name).title,
            *(str(pairs.ratio(name, part)) for part in parts),
        )
        for name in ("loss_range", "gradient_change", "beta", "limit")
    ]
