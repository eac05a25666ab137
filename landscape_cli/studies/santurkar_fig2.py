"""Noise behind BatchNorm: distributions that shift at every step, and training all the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from landscape_cli.studies.contract import Claim, Findings
from landscape_cli.studies.distributions import (
    MEASURE,
    first_batch,
    histogram_panels,
    instability_ratio,
    join_checkpoints,
)
from landscape_cli.studies.estimates import mean_over_seeds
from landscape_cli.studies.landscapes import PAPER
from landscape_cli.studies.networks import LABELS, Network, Runs, Trainings, train_each, vgg
from landscape_cli.studies.performance import (
    accuracy_gain,
    divergences,
    draw_training,
    faster_claim,
    last_accuracies,
)

if TYPE_CHECKING:
    from landscape_cli.runs import Run
    from landscape_cli.studies.workbench import Trained, Workbench

NORMS = ("none", "batch", "noisy", "noise")
CHANCE = 0.2
"""Twice the accuracy of guessing one of ten classes: at most this is no training."""
SAME = 0.02
"""A difference of accuracies that counts as none."""
NOTE = (
    "Distributions are of one batch, at pairs of successive training steps. The noise is drawn "
    "anew at every checkpoint, as it is at every step of training."
)


class NoisyBatchNorm:
    """Fig. 2: BatchNorm with shifting noise behind it trains as well, with unstable inputs."""

    name = "santurkar-fig2"
    title = "“Noisy” BatchNorm: unstable distributions, and training hardly worse"
    source = f"{PAPER}, Fig. 2"

    def run(self, bench: Workbench) -> Findings:
        """Train without, with BatchNorm, with noise behind it and with noise alone."""
        from landscape_cli.figures.document import Section

        network = _with_successive_steps(vgg(bench))
        trainings = train_each(bench, network, NORMS)
        runs = {norm: _follow(bench, network, trainings[norm]) for norm in NORMS[:3]}
        columns = {"accuracy": "training accuracy", "loss": "training loss"}
        sections = [
            Section("Fig. 2", figures=[draw_training(trainings, columns)]),
            Section("Distributions", NOTE, histogram_panels(runs)),
        ]
        return Findings(self._claims(trainings, runs), sections)

    def _claims(self, trainings: Trainings, runs: Runs) -> list[Claim]:
        where = f"{PAPER}, §2.1 and Fig. 2"
        return [
            _difference_claim(trainings, where),
            *(
                faster_claim(
                    trainings,
                    "none",
                    norm,
                    source=where,
                    claim=f"{LABELS[norm].partition(' + ')[2]} performs much better than the "
                    "standard network",
                )
                for norm in ("batch", "noisy")
            ),
            _instability_claim(runs, f"{PAPER}, §2.1 and Fig. 7"),
            _control_claim(trainings, f"{PAPER}, §2.1"),
        ]


def _with_successive_steps(network: Network) -> Network:
    """Return the network, recorded at pairs of successive training steps too."""
    training = network.training
    return replace(network, training={**training, "at": [s + 1 for s in _starts(training)]})


def _starts(training: Mapping[str, Any]) -> range:
    """Return the steps at which a pair begins: four or so, evenly over training."""
    steps, every = training["steps"], training["every"]
    return range(0, steps, every * max(1, round(steps / every / 4)))


def _pairs(trained: Trained, network: Network) -> list[Path]:
    """Return the checkpoints of the pairs, in order."""
    from landscape_cli.record.files import step_of

    starts = _starts(network.training)
    wanted = {place for start in starts for place in (start, start + 1)}
    return [path for path in trained.checkpoints if step_of(path) in wanted]


def _follow(bench: Workbench, network: Network, group: list[Trained]) -> list[Run]:
    """Probe the activations of one batch along each trajectory, with new noise at each checkpoint.

    A run draws noise from its seed, the same at all of its checkpoints; so every checkpoint is a
    run of its own, and the runs are put together. All units are followed: which ones a few are
    would depend on the seed, too.
    """
    followed = []
    units = bench.choose(smoke=16, laptop=64, paper=512)
    for trained in group:
        batch = first_batch(trained.data, network.probing["batch_size"])
        runs = [
            bench.probe(
                f"{trained.name}-{path.stem}",
                trained,
                at=[path],
                data=[batch],
                measures=(f"{MEASURE}?bins=64&units={units}",),
                steps="1:2:1",
                seed=index,
            )
            for index, path in enumerate(_pairs(trained, network))
        ]
        followed.append(join_checkpoints(runs))
    return followed


def _difference_claim(trainings: Trainings, source: str) -> Claim:
    gain = accuracy_gain(trainings, "batch", "noisy", "accuracy")
    return Claim(
        claim="the performance difference between BatchNorm and “noisy” BatchNorm is almost "
        "non-existent",
        source=source,
        expected="training accuracy at the end of “noisy” BatchNorm less that of BatchNorm from "
        f"−{SAME} to {SAME}",
        observed=f"difference {gain}",
        holds=gain.within(-SAME, SAME),
        interval=gain.interval,
    )


def _instability_claim(runs: Runs, source: str) -> Claim:
    ratio = instability_ratio(runs, "none", "noisy", apart=1)
    return Claim(
        claim="the “noisy” BatchNorm network has less stable distributions than even the standard "
        "network",
        source=source,
        expected="change of the inputs' mean and deviation between successive training steps, "
        "“noisy” BatchNorm over none, above 1",
        observed=f"ratio {ratio}",
        holds=ratio.above(1.0),
        interval=ratio.interval,
    )


def _control_claim(trainings: Trainings, source: str) -> Claim:
    accuracy = mean_over_seeds(last_accuracies(trainings["noise"], "accuracy"))
    return Claim(
        claim="the same noise on the activations of the standard network prevents it from "
        "training entirely",
        source=source,
        expected=f"training accuracy at the end below {CHANCE} (chance is 0.1)",
        observed=f"accuracy {accuracy}",
        holds=accuracy.below(CHANCE),
        interval=accuracy.interval,
        explanation=divergences({"noise": trainings["noise"]}),
    )


STUDY = NoisyBatchNorm()
