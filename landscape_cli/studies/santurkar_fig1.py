"""The VGG with and without BatchNorm: training, test, and distributions of activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from landscape_cli.studies.contract import Claim, Findings
from landscape_cli.studies.distributions import MEASURE, histogram_panels, instability_ratio
from landscape_cli.studies.landscapes import PAPER
from landscape_cli.studies.networks import LABELS, Runs, Trainings, probe_each, train_each, vgg
from landscape_cli.studies.performance import (
    accuracy_gain,
    divergences,
    draw_training,
    faster_claim,
)

if TYPE_CHECKING:
    from landscape_cli.figures.document import Section
    from landscape_cli.studies.workbench import Workbench

NORMS = ("none", "batch")


class TrainingWithAndWithout:
    """Fig. 1: BatchNorm trains and generalises better; its inputs are hardly more stable."""

    name = "santurkar-fig1"
    title = "Training and test performance of the VGG, and its activations, with BatchNorm"
    source = f"{PAPER}, Fig. 1"

    def run(self, bench: Workbench) -> Findings:
        """Train both with every seed, and follow the distributions of layer inputs."""
        network = vgg(bench)
        trainings = train_each(bench, network, NORMS)
        runs = probe_each(bench, network, trainings, measures=(MEASURE,), steps="1:2:1")
        claims = [
            faster_claim(
                trainings,
                *NORMS,
                source=f"{self.source}a",
                claim="there is a consistent gain in training speed with BatchNorm",
            ),
            _accuracy_claim(trainings, "accuracy", "training", f"{self.source}a"),
            _accuracy_claim(trainings, "test_accuracy", "test", f"{self.source}b"),
            _stability_claim(runs, f"{self.source}c"),
        ]
        return Findings(claims, _sections(trainings, runs))


def _accuracy_claim(trainings: Trainings, column: str, what: str, source: str) -> Claim:
    gain = accuracy_gain(trainings, *NORMS, column)
    return Claim(
        claim=f"{what} performance is better with BatchNorm (published test accuracy: 83 % "
        "against 80 %)",
        source=source,
        expected=f"{what} accuracy of {LABELS['batch']} less that of {LABELS['none']} above 0",
        observed=f"difference {gain}",
        holds=gain.above(0.0),
        interval=gain.interval,
        explanation=divergences(trainings),
    )


def _stability_claim(runs: Runs, source: str) -> Claim:
    ratio = instability_ratio(runs, *NORMS)
    return Claim(
        claim="the difference in distributional stability (change in mean and variance of layer "
        "inputs) is marginal",
        source=source,
        expected="change of the inputs' mean and deviation between checkpoints, BatchNorm over "
        "none, from ½ to 2",
        observed=f"ratio {ratio}",
        holds=ratio.within(0.5, 2.0),
        interval=ratio.interval,
    )


def _sections(trainings: Trainings, runs: Runs) -> list[Section]:
    from landscape_cli.figures.document import Section

    columns = {
        "accuracy": "training accuracy",
        "test_accuracy": "test accuracy",
        "loss": "training loss",
    }
    return [
        Section("Fig. 1a and 1b", figures=[draw_training(trainings, columns)]),
        Section("Fig. 1c", figures=histogram_panels(runs)),
    ]


STUDY = TrainingWithAndWithout()
