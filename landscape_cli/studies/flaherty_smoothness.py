"""β-smoothness in the space of activations, the step 1/β, and why scale alone must not count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from landscape_cli.studies.contests import few
from landscape_cli.studies.contract import Claim, Findings
from landscape_cli.studies.estimates import Estimate, mean_over_seeds, ratio_over_seeds
from landscape_cli.studies.networks import LABELS, Network, Runs, Trainings, probe_each, train_each

if TYPE_CHECKING:
    from landscape_cli.figures.document import Section
    from landscape_cli.runs import Run
    from landscape_cli.studies.workbench import Trained, Workbench

PAPER = "Flaherty (2019)"
BETA, FORM = "activation_smoothness/beta", "activation_smoothness/quadratic_form"
FACTOR = 4.0
"""By which parameters are rescaled: a power of two, so that nothing is rounded."""
AROUND = 4.0
"""Factor up to which a step size is around another."""
NOTES = (
    "The post does not say which networks its figure is of: here a small VGG, trained by gradient "
    "descent at 0.1 with batches of 128, without and with BatchNorm. Its β is between two "
    "successive steps; here the maximum over steps from ½ to 4 times the learning rate.",
    "The post's bound on convergence lacks the square of the distance that the notes it cites "
    "have. Its lemma on initialisation, which lacks a square too, is in santurkar-theorems.",
)


@dataclass(frozen=True)
class SmoothnessStudy:
    """The post's figure and what it says of step sizes and of scale."""

    name: str = "flaherty-smoothness"
    title: str = "β-smoothness in activation space, the step 1/β, and rescaling"
    source: str = f"{PAPER}, Batch Normalization (Part 2)"

    def run(self, bench: Workbench) -> Findings:
        """Train without and with BatchNorm, probe, rescale, and judge."""
        network = _network(bench)
        trainings = train_each(bench, network, ("none", "batch"))
        runs = probe_each(bench, network, trainings, measures=("activation_smoothness",))
        descents = _descents(bench, trainings)
        claims = [
            *_smoother(runs, _sizes(bench, trainings, runs)),
            *_step_sizes(runs, descents),
            *_rescaled(bench, trainings["none"]),
            _bound(bench),
        ]
        return Findings(claims, _sections(runs, descents), NOTES)


def _network(bench: Workbench) -> Network:
    images = bench.images("cifar10")
    size = bench.choose(smoke="config=4,M,8", laptop="config=8,M,16,M,16", paper="depth=11")
    return Network(
        name="vgg",
        target=f"sample:vgg?{size}&{images.options}",
        data=images.train,
        training={
            "steps": bench.choose(smoke=6, laptop=300, paper=15_000),
            "every": bench.choose(smoke=3, laptop=20, paper=150),
            "batch_size": 128,
            "lr": 0.1,
        },
        probing={
            "batch_size": 128,
            "steps": f"0.5:4:{bench.choose(smoke=3, laptop=8, paper=16)}",
        },
    )


def _descents(bench: Workbench, trainings: Trainings) -> Runs:
    """Probe a few checkpoints again: gradient descent at step sizes over three decades."""
    iterations, count = bench.choose(smoke=(3, 5), laptop=(10, 13), paper=(20, 25))
    return {
        norm: [
            bench.probe(
                f"{trained.name}-descent",
                trained,
                at=few(trained.checkpoints, 3),
                batch_size=128,
                steps=f"0.03:30:{count}",
                measures=(f"learning_rate_range?iterations={iterations}",),
                seed=seed,
            )
            for seed, trained in zip(bench.seeds, group, strict=True)
        ]
        for norm, group in trainings.items()
    }


def _sizes(bench: Workbench, trainings: Trainings, runs: Runs) -> dict[str, list[np.ndarray]]:
    """Return the mean ‖y‖² by norm: one array (checkpoint, layer) per seed."""
    from landscape_cli.studies.rescaling import mean_square_outputs

    layers = runs["none"][0].labels("activation_smoothness/layer")
    return {
        norm: [
            np.array(mean_square_outputs(trained, layers, batch_size=128, seed=seed))
            for seed, trained in zip(bench.seeds, group, strict=True)
        ]
        for norm, group in trainings.items()
    }


def typical_ratio(first: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> Estimate:
    """Return other ÷ first: geometric means over the positive finite pairs, then over seeds."""
    means = []
    for a, b in zip(first, other, strict=True):
        usable = np.isfinite(a) & np.isfinite(b) & (a > 0) & (b > 0)
        means.append(
            float(np.exp(np.log(b[usable] / a[usable]).mean())) if usable.any() else np.nan
        )
    return ratio_over_seeds(means, [1.0] * len(means))


def _smoother(runs: Runs, sizes: dict[str, list[np.ndarray]]) -> list[Claim]:
    betas = {norm: [run[BETA][:, 0] for run in group] for norm, group in runs.items()}
    forms = {norm: [run[FORM] for run in group] for norm, group in runs.items()}
    relative = {
        norm: [beta * size for beta, size in zip(betas[norm], sizes[norm], strict=True)]
        for norm in runs
    }
    initial = typical_ratio(*([beta[:1] for beta in betas[norm]] for norm in ("none", "batch")))
    last = typical_ratio(*([beta[:, -1] for beta in betas[norm]] for norm in ("none", "batch")))
    negative = np.mean([(form <= 0).mean() for group in forms.values() for form in group])
    return [
        _ratio_claim(
            "the effective β-smoothness in activation space is lower with BatchNorm",
            "figure",
            ("β* at the layers' outputs", typical_ratio(betas["none"], betas["batch"])),
            f"At initialisation the ratio is {initial}; at the output layer, which no norm "
            f"follows, {last} over the training.",
        ),
        _ratio_claim(
            "the quadratic form of the Hessian along the gradient is lower with BatchNorm",
            "theoretical analysis",
            ("(∇_y L)ᵀ ∂²L/∂y∂y (∇_y L)", typical_ratio(forms["none"], forms["batch"])),
            f"Forms that are not positive are left out: {negative:.0%}.",
        ),
        _ratio_claim(
            "the improvement of β-smoothness is not one of scale",
            "how does smoothness improve training time",
            (
                "β*·mean‖y‖², unchanged where outputs are rescaled",
                typical_ratio(relative["none"], relative["batch"]),
            ),
            "Outputs in front of a BatchNorm can have any length at the same loss, so that β* "
            "there says little without it.",
        ),
    ]


def _ratio_claim(text: str, where: str, found: tuple[str, Estimate], explanation: str) -> Claim:
    what, ratio = found
    return Claim(
        claim=text,
        source=f"{PAPER}, {where}",
        expected=f"{what}, with BatchNorm over without, below 1",
        observed=f"ratio {ratio}",
        holds=ratio.below(1.0),
        interval=ratio.interval,
        explanation=explanation,
    )


def best_step_sizes(run: Run) -> np.ndarray:
    """Return the step size whose descent ends lowest, per checkpoint."""
    ends = run["learning_rate_range/loss"][:, :, -1]
    ends = np.where(np.isfinite(ends), ends, np.inf)
    return np.take_along_axis(run["step_size"], ends.argmin(axis=1)[:, None], axis=1)[:, 0]


def _beta_at(run: Run, descent: Run) -> np.ndarray:
    """Return β* along the gradient at the checkpoints of a descent."""
    rows = [run.labels("checkpoint").index(name) for name in descent.labels("checkpoint")]
    return np.asarray(run["effective_smoothness/beta"][rows, 0])


def _step_sizes(runs: Runs, descents: Runs) -> list[Claim]:
    pairs = {n: list(zip(runs[n], descents[n], strict=True)) for n in runs}
    best = {n: [best_step_sizes(descent) for _, descent in pairs[n]] for n in runs}
    betas = {n: [_beta_at(*pair) for pair in pairs[n]] for n in runs}
    products = {n: [a * b for a, b in zip(best[n], betas[n], strict=True)] for n in runs}
    ones = [np.ones_like(product) for product in products["none"]]
    around = {n: typical_ratio(ones, products[n]) for n in runs}
    gain = typical_ratio(best["none"], best["batch"])
    return [
        *(
            Claim(
                claim=f"the optimal learning rate is around 1/β, {name}",
                source=f"{PAPER}, how does smoothness improve training time",
                expected="best step size of a few steps of descent times β* from "
                f"{1 / AROUND:g} to {AROUND:g}",
                observed=f"product {around[norm]}",
                holds=around[norm].within(1 / AROUND, AROUND),
                interval=around[norm].interval,
                explanation="The theory is of convex functions and of β everywhere; β* is along "
                "the gradient, over steps around the learning rate.",
            )
            for norm, name in (("none", "without BatchNorm"), ("batch", "with BatchNorm"))
        ),
        Claim(
            claim="a lower β affords a larger learning rate",
            source=f"{PAPER}, how does smoothness improve training time",
            expected="best step size, with BatchNorm over without, above 1",
            observed=f"ratio {gain}; that of β* {typical_ratio(betas['none'], betas['batch'])}",
            holds=gain.above(1.0),
            interval=gain.interval,
        ),
    ]


def _rescaled(bench: Workbench, group: Sequence[Trained]) -> list[Claim]:
    """Probe the last networks as they are and with all parameters stored four times as large."""
    pairs = [
        tuple(_probe_rescaled(bench, trained, factor, seed) for factor in (1.0, FACTOR))
        for seed, trained in zip(bench.seeds, group, strict=True)
    ]
    beta, activation = (
        ratio_over_seeds(
            [_largest(scaled, path) for _, scaled in pairs],
            [_largest(plain, path) for plain, _ in pairs],
        )
        for path in ("effective_smoothness/beta", BETA)
    )
    gaps = [_path_gap(*pair) for pair in pairs]
    gap = mean_over_seeds(gaps)
    source = f"{PAPER}, how does smoothness improve training time"
    return [
        Claim(
            claim="re-scaling the parameters reduces β",
            source=source,
            expected=f"all parameters times {FACTOR:g}: β* in parameter space divided by "
            f"{FACTOR**2:g}, ratio {1 / FACTOR**2:g}",
            observed=f"ratio {beta}; of β* in activation space {activation}",
            holds=beta.within(0.999 / FACTOR**2, 1.001 / FACTOR**2),
            interval=beta.interval,
        ),
        Claim(
            claim="re-scaling the parameters does not improve convergence",
            source=source,
            expected=f"descent with step sizes times {FACTOR**2:g}: the same losses, relative "
            "difference below 1e-9",
            observed=f"difference {gap}",
            holds=gap.below(1e-9),
            interval=gap.interval,
            explanation="It is the same descent in other units: comparisons of β* between networks "
            "need a scale, the learning rate or the size of what is moved.",
        ),
    ]


def _probe_rescaled(bench: Workbench, trained: Trained, factor: float, seed: int) -> Run:
    import torch

    from landscape_cli.probing import probe
    from landscape_cli.studies.rescaling import loaded, rescale

    model = loaded(trained, -1, torch.float64)
    name = f"{trained.name}-times-{factor:g}"
    path = bench.folder / "runs" / f"{name}.h5"
    bench.runs[name] = path
    return probe(
        model=rescale(model, factor) if factor != 1 else model,
        data=trained.data,
        output=path,
        overwrite=True,
        lr=trained.lr * factor**2,
        batch_size=128,
        steps="0.25:2:4",
        measures=("activation_smoothness", "learning_rate_range?iterations=5"),
        seed=seed,
    )


def _largest(run: Run, path: str) -> float:
    return float(np.nanmax(run[path]))


def _path_gap(first: Run, other: Run) -> float:
    a, b = (run["learning_rate_range/loss"] for run in (first, other))
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    known = np.isfinite(a)
    return float((np.abs(a[known] - b[known]) / np.abs(a[known])).max())


def _bound(bench: Workbench) -> Claim:
    """Hold the bound on convergence at 1/β against least squares, where β = λ_max is known."""
    import torch

    from landscape_cli.studies.cai_ols import data_spec, samples_of
    from landscape_cli.studies.least_squares import Problem
    from sample_models.optim import descend

    shares, printed = [], []
    for seed in bench.seeds:
        problem = Problem.of(data_spec(16, seed), samples_of(16), seed)
        moments = problem.moments
        beta = 2 / moments.largest_step
        losses = descend(moments, problem.start, [1 / beta], 500).losses[:, 0]
        distance = float(torch.linalg.vector_norm(problem.start - moments.solution))
        after = np.arange(1, len(losses))  # t − 1, for the first is x₁
        excess = np.asarray(losses[1:] - moments.minimum) * after / (2 * beta)
        shares.append(float(excess.max()) / distance**2)
        printed.append(float(excess.max()) / distance)
    share = mean_over_seeds(shares)
    return Claim(
        claim="with the learning rate 1/β, f(x_t) − f(x*) ≤ 2β‖x₁ − x*‖²/(t − 1)",
        source=f"{PAPER}, how does smoothness improve training time",
        expected="on least squares, where β = λ_max: left over right at most 1 for all t to 500",
        observed=f"largest ratio {share}",
        holds=share.below(1.0),
        interval=share.interval,
        explanation="As printed, without the square, the largest ratio is "
        f"{mean_over_seeds(printed)}: without it the two sides have different units.",
    )


def _sections(runs: Runs, descents: Runs) -> list[Section]:
    from landscape_cli.figures.activation_smoothness import draw_activation_smoothness
    from landscape_cli.figures.document import Panel, Section
    from landscape_cli.figures.learning_rate_range import draw_learning_rate_range

    labels = [LABELS[norm] for norm in runs]
    first = [group[0] for group in runs.values()]
    layers = first[0].labels("activation_smoothness/layer")
    by_layer = {
        layer: draw_activation_smoothness(first, labels=labels, layer=layer) for layer in layers
    }
    by_seed = {
        f"{seed}": draw_learning_rate_range(list(group), labels=labels)
        for seed, group in enumerate(zip(*descents.values(), strict=True))
    }
    return [
        Section(
            "The post's figure",
            figures=[Panel(by_layer, "The first seed.", "layer", "β* in activation space")],
        ),
        Section(
            "Gradient descent at many step sizes",
            figures=[Panel(by_seed, "From the last checkpoint.", "seed", "Loss after descent")],
        ),
    ]


STUDY = SmoothnessStudy()
