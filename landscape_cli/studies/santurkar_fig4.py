"""The optimisation landscape of the VGG, with and without BatchNorm."""

from __future__ import annotations

from landscape_cli.studies.contract import Claim
from landscape_cli.studies.landscapes import PAPER, LandscapeStudy
from landscape_cli.studies.networks import LABELS, Runs, Trainings, vgg
from landscape_cli.studies.smoothness import (
    PARTS,
    Pairs,
    explain_first_steps,
    explain_untrained,
    quantity,
)


def _further(trainings: Trainings, runs: Runs) -> list[Claim]:  # noqa: ARG001
    return [_two_orders(runs), *_random_directions(runs)]


def _two_orders(runs: Runs) -> Claim:
    """Return whether gradients change at least ten times less early in training."""
    pairs = Pairs(runs, "none", "batch")
    quarter = max(1, len(runs["none"][0]["checkpoint"]) // 4)
    ratio = pairs.ratio("gradient_change", slice(0, quarter))
    return Claim(
        claim="early in training the gradient changes less by close to two orders of magnitude",
        source=f"{PAPER}, §3.2 and Fig. 4b",
        expected="over the first quarter of the checkpoints, gradient change of "
        f"{LABELS['batch']} over {LABELS['none']} below 0.1",
        observed=f"ratio {ratio}",
        holds=ratio.below(0.1),
        interval=ratio.interval,
        explanation=" ".join(
            filter(None, (explain_untrained(pairs), explain_first_steps(pairs, "gradient_change")))
        ),
    )


def _random_directions(runs: Runs) -> list[Claim]:
    """Return whether the landscape is smoother along random directions too."""
    claims = []
    for name in PARTS:
        pairs = Pairs(runs, "none", "batch", "random:0")
        ratio = pairs.ratio(name)
        claims.append(
            Claim(
                claim=f"along random directions the loss behaves similarly: {quantity(name).title}"
                " is lower with BatchNorm",
                source=f"{PAPER}, §3.2, last paragraph",
                expected=f"{quantity(name).title} of {LABELS['batch']} over {LABELS['none']} along "
                "a random direction of the gradient's length below 1",
                observed=f"ratio {ratio}",
                holds=ratio.below(1.0),
                interval=ratio.interval,
            )
        )
    return claims


STUDY = LandscapeStudy(
    name="santurkar-fig4",
    title="Optimisation landscape of the VGG: loss range, gradient predictiveness, β-smoothness",
    figure="Fig. 4",
    network=vgg,
    directions=("gradient", "random:1"),
    further=_further,
)
