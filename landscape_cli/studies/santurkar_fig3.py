"""Internal covariate shift of the VGG and the deep linear network, with and without BatchNorm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from landscape_cli.studies.contract import Claim, Findings
from landscape_cli.studies.distributions import common_layers
from landscape_cli.studies.estimates import Estimate, mean_over_seeds, ratio_over_seeds
from landscape_cli.studies.landscapes import PAPER
from landscape_cli.studies.networks import (
    LABELS,
    Runs,
    Trainings,
    deep_linear,
    probe_each,
    train_each,
    vgg,
)
from landscape_cli.studies.performance import draw_training, faster_claim

if TYPE_CHECKING:
    from landscape_cli.figures.document import Panel, Section
    from landscape_cli.runs import Run
    from landscape_cli.studies.workbench import Workbench

MEASURE = "covariate_shift"
NORMS = ("none", "batch")
FROM_TRAINING = (
    "A gradient step at the learning rate on all earlier layers, on the batch that is probed. "
    "Layers that both networks have; of the first there is no shift."
)


class CovariateShift:
    """Fig. 3 and 6: BatchNorm does not reduce internal covariate shift."""

    name = "santurkar-fig3"
    title = "Internal covariate shift of the VGG and of the deep linear network"
    source = f"{PAPER}, Fig. 3"

    def run(self, bench: Workbench) -> Findings:
        """Train both networks with every norm and seed, and measure the shift of their layers."""
        from landscape_cli.figures.document import Section

        claims: list[Claim] = []
        sections: list[Section] = []
        for panel, network in zip("ab", (vgg(bench), deep_linear(bench)), strict=True):
            trainings = train_each(bench, network, NORMS)
            runs = probe_each(bench, network, trainings, measures=(MEASURE,), steps="1:2:1")
            where = f"{self.source}{panel}"
            judge = _vgg_claims if network.name == "VGG" else _linear_claims
            claims += [*judge(runs, where), _training_claim(trainings, network.name, where)]
            figures = [*shift_panels(runs), draw_training(trainings, {"loss": "training loss"})]
            title = f"Fig. 3{panel} and 6{panel}: {network.name}"
            sections.append(Section(title, FROM_TRAINING, figures))
        return Findings(claims, sections)


def _values(runs: Runs, norm: str, name: str) -> list[np.ndarray]:
    """Return a field at the layers that all have but the first: (checkpoint, layer) per seed."""
    shared = common_layers(runs, MEASURE)[1:]
    return [_field(run, name, shared) for run in runs[norm]]


def _field(run: Run, name: str, layers: list[str]) -> np.ndarray:
    places = [run.labels(f"{MEASURE}/layer").index(layer) for layer in layers]
    return np.asarray(run[f"{MEASURE}/{name}"][:, places])


def mean_cosine(runs: Runs, norm: str) -> list[float]:
    """Return the mean cosine of G and G′ over layers and checkpoints, one per seed."""
    return [float(np.nanmean(values)) for values in _values(runs, norm, "cosine")]


def _first_cosine(runs: Runs, norm: str) -> Estimate:
    return mean_over_seeds([float(np.nanmean(v[0])) for v in _values(runs, norm, "cosine")])


def geometric_l2(runs: Runs, norm: str) -> list[float]:
    """Return the geometric mean of ‖G − G′‖₂ over layers and checkpoints, one per seed."""
    means = []
    for values in _values(runs, norm, "l2"):
        usable = values[np.isfinite(values) & (values > 0)]
        means.append(float(np.exp(np.log(usable).mean())) if usable.size else float("nan"))
    return means


def _vgg_claims(runs: Runs, source: str) -> list[Claim]:
    none, batch = (mean_cosine(runs, norm) for norm in NORMS)
    gain = mean_over_seeds([b - a for a, b in zip(none, batch, strict=True)])
    ratio = ratio_over_seeds(geometric_l2(runs, "batch"), geometric_l2(runs, "none"))
    text = "VGG with BatchNorm has similar, or even worse, internal covariate shift"
    return [
        Claim(
            claim=f"{text}: the cosine of G and G′ is not higher",
            source=source,
            expected="mean cosine with BatchNorm less without below 0.05",
            observed=f"difference {gain}; {mean_over_seeds(batch)} with, "
            f"{mean_over_seeds(none)} without",
            holds=gain.below(0.05),
            interval=gain.interval,
        ),
        Claim(
            claim=f"{text}: ‖G − G′‖₂ is not lower",
            source=source,
            expected="‖G − G′‖₂ with BatchNorm over without above ½",
            observed=f"ratio {ratio}",
            holds=ratio.above(0.5),
            interval=ratio.interval,
        ),
    ]


def _linear_claims(runs: Runs, source: str) -> list[Claim]:
    none, batch = (mean_over_seeds(mean_cosine(runs, norm)) for norm in NORMS)
    return [
        Claim(
            claim="the standard deep linear network has almost no internal covariate shift for "
            "the entirety of training",
            source=source,
            expected="mean cosine of G and G′ without BatchNorm above 0.9",
            observed=f"cosine {none}; at initialisation {_first_cosine(runs, 'none')}",
            holds=none.above(0.9),
            interval=none.interval,
        ),
        Claim(
            claim="in the deep linear network with BatchNorm G and G′ are almost uncorrelated",
            source=source,
            expected="mean cosine of G and G′ with BatchNorm from −0.2 to 0.2",
            observed=f"cosine {batch}; at initialisation {_first_cosine(runs, 'batch')}",
            holds=batch.within(-0.2, 0.2),
            interval=batch.interval,
        ),
    ]


def _training_claim(trainings: Trainings, name: str, source: str) -> Claim:
    return faster_claim(
        trainings,
        *NORMS,
        claim=f"{name} with BatchNorm nevertheless performs better in terms of loss",
        source=source,
    )


def shift_panels(runs: Runs) -> list[Panel]:
    """Return the shift of layers over training, for the first seed, with a choice of layer."""
    from landscape_cli.figures.covariate_shift import draw_covariate_shift
    from landscape_cli.figures.document import Panel

    shared = common_layers(runs, MEASURE)[1:]
    picked = sorted({0, len(shared) // 4, len(shared) // 2, len(shared) - 1})
    firsts, labels = [kind[0] for kind in runs.values()], [LABELS[norm] for norm in runs]
    figures = {
        shared[place]: draw_covariate_shift(firsts, labels=labels, layer=shared[place])
        for place in picked
    }
    caption = "Ideally ‖G − G′‖₂ is 0 and the cosine 1. Seed 0."
    return [Panel(figures, caption, "layer", "Internal covariate shift over training")]


STUDY = CovariateShift()
