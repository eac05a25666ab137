"""Residual networks: BN, GN, BNP alone, and BNP with GN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from landscape_cli.studies.contests import Contest, ContestStudy, Contrast, Method, Outcome
from landscape_cli.studies.contract import Claim
from landscape_cli.studies.estimates import mean_over_seeds
from landscape_cli.studies.lange import PAPER

if TYPE_CHECKING:
    from landscape_cli.studies.workbench import Workbench

GN = "norm=group&norm_group_size=4"
EPOCH = 391
"""Steps of an epoch of CIFAR with batches of 128."""
BEFORE = 3
"""Evaluations before and behind the first decay that its jump is taken from."""


@dataclass(frozen=True)
class Protocol:
    """What differs between the two panels; epochs are the published ones.

    Attributes:
        published: the data set.
        side: of the figure.
        options: of the residual network.
        epochs: how long; where the text does not say, as in the work that it follows.
        decays: epochs at which the learning rate is divided by ten.
        bnp_lr: of BNP alone.
        penalty: weight decay of BNP with GN.
        scale: of the initial weights of BNP with GN, and of BNP alone.
        after: relation of BNP+GN to BN after the decay.
    """

    published: str
    side: str
    options: str
    epochs: int
    decays: tuple[int, int]
    bnp_lr: float
    penalty: float
    scale: float
    after: tuple[str, Any]


PROTOCOLS = (
    Protocol(
        "cifar10", "left", "", 164, (80, 120), 0.1, 1.5e-4, 0.1, ("comparable to", "comparable")
    ),
    Protocol(
        *("cifar100", "right", "&preactivation=True", 300, (150, 220), 0.01, 2e-4, 0.4),
        ("slightly lower than", "lower"),
    ),
)


def _contrasts(protocol: Protocol) -> tuple[Contrast, ...]:
    word, relation = protocol.after
    return (
        Contrast(
            "BNP+GN converges faster than BN before the decay", "BN", "BNP+GN", "early", "higher"
        ),
        Contrast(f"after the decay BNP+GN is {word} BN", "BN", "BNP+GN", "final", relation),
        Contrast("BNP+GN outperforms GN significantly", "GN", "BNP+GN", "final", "higher"),
        Contrast("BN outperforms GN significantly", "GN", "BN", "final", "higher"),
        Contrast(
            "BNP alone converges faster than BN before the decay", "BN", "BNP", "early", "higher"
        ),
    )


def _contest(bench: Workbench, protocol: Protocol) -> Contest:
    images = bench.images(protocol.published)
    train = f"{images.train}&augment=True" if bench.preset == "paper" else images.train
    classes = 100 if bench.preset == "paper" and protocol.published == "cifar100" else 10
    size = bench.choose(smoke="depth=8&width=4", laptop="depth=8&width=8", paper="depth=110")
    steps = bench.choose(smoke=8, laptop=200, paper=protocol.epochs * EPOCH)
    share = steps / (protocol.epochs * EPOCH)
    return Contest(
        name=protocol.published,
        title=f"Fig. 6 {protocol.side}: residual network, the protocol of {protocol.published}",
        model=f"sample:resnet?{size}&in_channels={images.channels}&classes={classes}"
        f"{protocol.options}",
        data=(train, images.test),
        methods=_methods(bench, protocol, share),
        contrasts=_contrasts(protocol),
        steps=steps,
        batch_size=128,
        source=f"{PAPER}, §5 and Fig. 6 {protocol.side}",
        settings={
            "momentum": 0.9,
            "weight_decay": 1e-4,
            "warmup_start": 0.1,
            "warmup_steps": round(400 * share),
            "decay_at": tuple(round(epoch * EPOCH * share) for epoch in protocol.decays),
        },
    )


def _methods(bench: Workbench, protocol: Protocol, share: float) -> tuple[Method, ...]:
    grouped: dict[str, Any] = {"warmup_steps": round(EPOCH * share)}
    scaled = f"init=he-normal&init_scale={protocol.scale}"
    alone = bench.choose(smoke="norm=none", laptop="norm=none", paper=f"norm=none&{scaled}")
    penalised = {**grouped, "weight_decay": protocol.penalty}
    return (
        Method("BN", 0.1, "norm=batch"),
        Method("GN", 0.1, GN, settings=grouped),
        Method("BNP", protocol.bnp_lr, alone, "bnp"),
        Method("BNP+GN", 0.1, f"{GN}&{scaled}", "bnp", penalised),
    )


def _contests(bench: Workbench) -> list[Contest]:
    return [_contest(bench, protocol) for protocol in PROTOCOLS]


def around_decay(outcome: Outcome, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean held-out accuracy just before and behind the first decay, (seed,) each."""
    contest = outcome.contest
    decay = contest.settings["decay_at"][0]
    place = int(np.searchsorted(contest.evaluated, decay, side="right"))
    values = outcome.accuracies(label)
    before = values[:, max(0, place - BEFORE) : place].mean(axis=1)
    return before, values[:, place : place + BEFORE].mean(axis=1)


def jumps(outcome: Outcome, label: str) -> np.ndarray:
    """Return how much the held-out accuracy rises at the first decay, one per seed."""
    before, behind = around_decay(outcome, label)
    return np.asarray(behind - before)


def _jump_claim(outcome: Outcome) -> Claim:
    excess = mean_over_seeds((jumps(outcome, "BN") - jumps(outcome, "BNP")).tolist())
    parts = [f"{label} {jumps(outcome, label).mean():.3f}" for label in outcome.trainings]
    before = [f"{n} {around_decay(outcome, n)[0].mean():.3f}" for n in ("BN", "BNP")]
    holds = excess.above(0.0)
    return Claim(
        claim="BNP alone gains less than BN from the decay of the learning rate",
        source=outcome.contest.source,
        expected=f"rise of the accuracy over {BEFORE} evaluations on either side of the first "
        "decay, BN less BNP, above 0",
        observed=f"difference {excess}; {', '.join(parts)}",
        holds=holds,
        interval=excess.interval,
        explanation="" if holds else f"Accuracy before the decay: {', '.join(before)}.",
    )


def _further(outcomes: Sequence[Outcome]) -> list[Claim]:
    return [_jump_claim(outcome) for outcome in outcomes]


STUDY = ContestStudy(
    name="lange-fig6",
    title="Residual networks: BN, GN, BNP alone, and BNP with GN",
    source=f"{PAPER}, Fig. 6",
    contests=_contests,
    further=_further,
    notes=(
        "Learning rates, momentum, weight decay, warm-up, decay, group size and the scaled "
        "initialisation are those of Appendix B; the lengths of 164 and 300 epochs, which it does "
        "not give, those of the works that it follows. The warm-up of GN is one epoch.",
        "In preset paper BNP alone starts from the same scaled weights as BNP+GN, for which alone "
        "the text gives them: from unscaled ones 110 layers without norms have losses above 10⁶ at "
        "the first step and none that is finite at the second. 8 layers take unscaled ones.",
        "Preset laptop trains networks of 8 layers on handwritten digits for 200 steps, with "
        "warm-up and decay at the same shares of the training.",
    ),
)
