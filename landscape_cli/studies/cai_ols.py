"""Gradient descent with BatchNorm on ordinary least squares: its four published properties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from landscape_cli.studies.contract import Claim, Findings
from landscape_cli.studies.estimates import Estimate, mean_over_seeds, ratio_over_seeds

if TYPE_CHECKING:
    from landscape_cli.figures.document import Section
    from landscape_cli.runs import Run
    from landscape_cli.studies.least_squares import Problem
    from landscape_cli.studies.workbench import Workbench

PAPER = "Cai, Li and Shen (2019)"
SUMMARY = f"{PAPER}, summary of theoretical results"
NEAR_ONE = 0.05
"""Relative difference up to which two rates agree."""
WIDE = np.geomspace(1e-6, 1e6, 49)
"""Step sizes as multiples of 2/λ_max, for the widths of ranges."""
FINE = np.geomspace(0.05, 50, 121)
"""The same, for the best one."""
NOTES = (
    "The published statements are theorems on the exact update; the slides give no sizes. Here H "
    "has a condition number of 10, w₀ has norm 1 and a random direction, and a₀ is the best for "
    "it. A descent has arrived when it has explained all but 10⁻⁶ of what can be explained.",
    "Arbitrary step sizes are tried from 1/100 to 1,000 times 2/λ_max, in preset smoke from 1/20 "
    "to 20 times; the time to arrive grows as they get larger.",
)


@dataclass(frozen=True)
class Sizes:
    """How large the problems are.

    Attributes:
        features: d, but for the last property.
        steps: of the descents that may take long.
        short: of those that must not.
        dimensions: d for the last property.
        grid: lowest, highest and number of the step sizes that convergence is asked for, as
            multiples of 2/λ_max; 1 must not be among them.
        iterations: of the probe's descents.
    """

    features: int
    steps: int
    short: int
    dimensions: tuple[int, ...]
    grid: tuple[float, float, int] = (0.01, 1000.0, 20)
    iterations: int = 200

    @property
    def multiples(self) -> np.ndarray:
        """The step sizes of `grid`, evenly spaced in their logarithm."""
        return np.geomspace(*self.grid)


@dataclass(frozen=True)
class LeastSquaresStudy:
    """Convergence, rate, robustness to the step size and to the dimension."""

    name: str = "cai-ols"
    title: str = "Gradient descent with BatchNorm on ordinary least squares"
    source: str = SUMMARY

    def run(self, bench: Workbench) -> Findings:
        """Iterate the exact updates, probe the same models, and judge."""
        from landscape_cli.studies.least_squares import Problem

        sizes = bench.choose(
            smoke=Sizes(8, 2_000, 500, (4, 16), (0.05, 20.0, 8), 50),
            laptop=Sizes(16, 20_000, 1_000, (4, 8, 16, 32, 64)),
            paper=Sizes(100, 100_000, 1_000, (4, 10, 32, 100, 316)),
        )
        problems = [
            Problem.of(data_spec(sizes.features, seed), samples_of(sizes.features), seed)
            for seed in bench.seeds
        ]
        runs = {norm: _probe(bench, norm, sizes, problems) for norm in ("none", "batch")}
        convergence, paths = _convergence(problems, sizes)
        dimensions = _widths(bench.seeds, sizes)
        claims = [
            *convergence,
            *_rates(problems, sizes),
            *_ranges(problems, sizes),
            *_probed_ranges(runs, sizes),
            *_dimension_claims(dimensions),
        ]
        return Findings(claims, _sections((sizes.multiples, paths), dimensions, runs), NOTES)


def data_spec(features: int, seed: int) -> str:
    """Return the spec of a problem of condition number 10 with some noise."""
    samples = samples_of(features)
    options = f"samples={samples}&features={features}&condition=10&noise=0.1"
    return f"sample:least-squares?{options}&seed={seed}&dtype=float64"


def samples_of(features: int) -> int:
    """Return how many samples a problem has."""
    return 4 * features


def _convergence(
    problems: Sequence[Problem], sizes: Sizes
) -> tuple[list[Claim], dict[str, np.ndarray]]:
    """Return the claims on convergence, and the last gaps by method, (seed, K)."""
    from landscape_cli.studies.least_squares import arrived

    grid, steps = sizes.multiples, sizes.steps
    plain = [problem.plain(grid, steps) for problem in problems]
    normalised = [problem.normalised(grid, steps)[0] for problem in problems]
    slower = [problem.normalised(grid, steps, scale_rate=0.5)[0] for problem in problems]
    beyond = [problem.normalised(grid, 200, scale_rate=2.5)[0] for problem in problems]
    small, large = grid < 1, grid > 1
    parts = {
        "below": [arrived(gaps)[small].mean() for gaps in plain],
        "above": [arrived(gaps)[large].mean() for gaps in plain],
        "bn": [arrived(gaps).mean() for gaps in normalised],
        "half": [arrived(gaps).mean() for gaps in slower],
        "beyond": [arrived(gaps).mean() for gaps in beyond],
    }
    shares = {name: mean_over_seeds(values) for name, values in parts.items()}
    claims = [
        _share_claim("gradient descent converges for small ε, below 2/λ_max", shares["below"], 1),
        _share_claim("gradient descent does not converge for larger ε", shares["above"], 0),
        _share_claim("with BN it converges for arbitrary ε, with ε_a = 1", shares["bn"], 1),
        _share_claim("with BN it converges for arbitrary ε, with ε_a = ½", shares["half"], 1),
        _share_claim("the proviso ε_a ≤ 1 matters: no convergence at 2½", shares["beyond"], 0),
    ]
    ends = {
        "GD": np.array([gaps[-1] for gaps in plain]),
        "GD with BN": np.array([gaps[-1] for gaps in normalised]),
    }
    return claims, ends


def _share_claim(text: str, share: Estimate, wanted: int) -> Claim:
    return Claim(
        claim=text,
        source=f"{SUMMARY}: convergence",
        expected=f"share of the step sizes whose descent arrives: {wanted}",
        observed=f"share {share}",
        holds=share.above(0.999) if wanted else share.below(0.001),
        interval=share.interval,
    )


def _rates(problems: Sequence[Problem], sizes: Sizes) -> list[Claim]:
    """Return whether the rate is linear, and which is faster at the best step size of each."""
    from landscape_cli.studies.least_squares import observed_contraction, steps_to_arrive

    agreements, plain_steps, normalised_steps = [], [], []
    for problem in problems:
        gaps, effective = problem.normalised(FINE, sizes.short)
        seen, predicted = observed_contraction(gaps), problem.contraction(effective)
        ratios = np.log(seen) / np.log(predicted)
        agreements.append(float(np.nanmedian(ratios)) if np.isfinite(ratios).any() else np.nan)
        normalised_steps.append(float(steps_to_arrive(gaps).min()))
        plain_steps.append(float(steps_to_arrive(problem.plain(FINE, sizes.short)).min()))
    agreement = mean_over_seeds(agreements)
    speed = ratio_over_seeds(normalised_steps, plain_steps)
    plain, normalised = np.mean([problem.conditions for problem in problems], axis=0)
    return [
        Claim(
            claim="the convergence of gradient descent with BN is linear",
            source=f"{SUMMARY}: convergence rate",
            expected="the logarithm of the gap falls by log ρ(I − ε̂H*)² per step: median over the "
            f"step sizes of seen over predicted within {NEAR_ONE:.0%} of 1",
            observed=f"seen over predicted {agreement}",
            holds=agreement.within(1 - NEAR_ONE, 1 + NEAR_ONE),
            interval=agreement.interval,
            explanation="The prediction is of the slowest mode alone. Near the best step size "
            "others are almost as slow, and what is seen before rounding shows is faster.",
        ),
        Claim(
            claim="with BN the rate can be faster",
            source=f"{SUMMARY}: convergence rate",
            expected="steps to arrive at the best step size of each, with BN over without, below 1",
            observed=f"ratio {speed}",
            holds=speed.below(1.0),
            interval=speed.interval,
            explanation=f"What bounds the rates is κ(H) = {plain:.3g} without BN and "
            f"κ(H*) = {normalised:.3g} with it, on average.",
        ),
    ]


def _ranges(problems: Sequence[Problem], sizes: Sizes) -> list[Claim]:
    """Return whether the range of step sizes that arrive soon is wider with BN."""
    from landscape_cli.studies.least_squares import arrived, decades

    plain = [decades(WIDE, arrived(p.plain(WIDE, sizes.short))) for p in problems]
    normalised = [decades(WIDE, arrived(p.normalised(WIDE, sizes.short)[0])) for p in problems]
    gain = mean_over_seeds(np.subtract(normalised, plain).tolist())
    return [
        Claim(
            claim="a small range of ε without BN, a wide range with it",
            source=f"{SUMMARY}: robustness to learning rates",
            expected=f"step sizes that arrive within {sizes.short} steps: a wider range with BN, "
            "in decades, difference above 0",
            observed=f"difference {gain}; {np.mean(plain):.2f} without, "
            f"{np.mean(normalised):.2f} with",
            holds=gain.above(0.0),
            interval=gain.interval,
        )
    ]


def _probe(bench: Workbench, norm: str, sizes: Sizes, problems: Sequence[Problem]) -> list[Run]:
    """Probe the models before training: descent by the tool itself, at every step size."""
    found = []
    for seed, problem in zip(bench.seeds, problems, strict=True):
        rate = problem.moments.largest_step / 2  # the loss mse is twice theirs
        trained = bench.train(
            f"{norm}-{seed}",
            f"sample:least-squares?in_features={sizes.features}&norm={norm}&seed={seed}",
            data_spec(sizes.features, seed),
            loss="mse",
            full_batch=True,
            steps=1,
            every=1,
            lr=rate / 2,
            dtype="float64",
            seed=seed,
        )
        settings: dict[str, Any] = {"freeze": ("scale",)} if norm == "batch" else {}
        found.append(
            bench.probe(
                trained.name,
                trained,
                at=trained.checkpoints[:1],
                batch_size=samples_of(sizes.features),
                dtype="float64",
                lr=rate,
                steps="{:g}:{:g}:{}".format(*sizes.grid),
                measures=(f"learning_rate_range?iterations={sizes.iterations}",),
                **settings,
            )
        )
    return found


def _probed_ranges(runs: dict[str, list[Run]], sizes: Sizes) -> list[Claim]:
    """Return what the measure `learning_rate_range` finds on the same models."""
    highest = {
        norm: [float(run["learning_rate_range/highest"][0]) for run in group]
        for norm, group in runs.items()
    }
    ratio = ratio_over_seeds(highest["batch"], highest["none"])
    top = [value > 0.999 * sizes.grid[1] for value in highest["batch"]]
    return [
        Claim(
            claim="a wide range of ε does not diverge with BN",
            source=f"{SUMMARY}: robustness to learning rates",
            expected="largest step size that does not diverge, measured by the probe on the models "
            "(a held fixed, ε_a = 0), with BN over without, above 10",
            observed=f"ratio {ratio}; with BN the largest that was tried at {sum(top)} of "
            f"{len(top)} seeds",
            holds=ratio.above(10.0),
            interval=ratio.interval,
        )
    ]


def _widths(seeds: Sequence[int], sizes: Sizes) -> dict[str, np.ndarray]:
    """Return the ranges of step sizes in decades by method, (seed, dimension); and the d."""
    from landscape_cli.studies.least_squares import Problem, arrived, decades

    plain = np.empty((len(seeds), len(sizes.dimensions)))
    normalised = np.empty_like(plain)
    for row, seed in enumerate(seeds):
        for column, features in enumerate(sizes.dimensions):
            problem = Problem.of(data_spec(features, seed), samples_of(features), seed)
            plain[row, column] = decades(WIDE, arrived(problem.plain(WIDE, sizes.short)))
            gaps, _ = problem.normalised(WIDE, sizes.short)
            normalised[row, column] = decades(WIDE, arrived(gaps))
    return {"d": np.array(sizes.dimensions), "GD": plain, "GD with BN": normalised}


def _dimension_claims(widths: dict[str, np.ndarray]) -> list[Claim]:
    slopes = {
        name: mean_over_seeds(
            [float(np.polyfit(np.log10(widths["d"]), row, 1)[0]) for row in widths[name]]
        )
        for name in ("GD", "GD with BN")
    }
    expected = "decades of the range of ε per decade of d: {}"
    source = f"{SUMMARY}: robustness to dimensions"
    plain, normalised = slopes["GD"], slopes["GD with BN"]
    return [
        Claim(
            claim="the dimension has no effect on gradient descent",
            source=source,
            expected=expected.format("from -0.1 to 0.1"),
            observed=f"slope {plain}",
            holds=plain.within(-0.1, 0.1),
            interval=plain.interval,
        ),
        Claim(
            claim="with BN, the higher the dimension the better",
            source=source,
            expected=expected.format("above 0"),
            observed=f"slope {normalised}; widths "
            + ", ".join(
                f"{width:.2f} at d = {d}"
                for d, width in zip(widths["d"], widths["GD with BN"].mean(axis=0), strict=True)
            ),
            holds=normalised.above(0.0),
            interval=normalised.interval,
        ),
    ]


def _sections(
    paths: tuple[np.ndarray, dict[str, np.ndarray]],
    widths: dict[str, np.ndarray],
    runs: dict[str, list[Run]],
) -> list[Section]:
    from landscape_cli.figures.document import Panel, Section
    from landscape_cli.figures.learning_rate_range import draw_learning_rate_range
    from landscape_cli.studies.seed_curves import draw_over_seeds

    grid, ends = paths
    dimensions = {name: widths[name] for name in ("GD", "GD with BN")}
    probed = {
        f"{seed}": draw_learning_rate_range(list(group), labels=["GD", "GD with BN, a fixed"])
        for seed, group in enumerate(zip(runs["none"], runs["batch"], strict=True))
    }
    return [
        Section(
            "Convergence",
            figures=[
                draw_over_seeds(
                    "Gap at the end against the step size",
                    ("ε · λ_max/2", grid),
                    ("gap", {name: np.clip(gaps, 1e-16, 1e16) for name, gaps in ends.items()}),
                )
            ],
            text="Gaps are drawn between 10⁻¹⁶ and 10¹⁶; those of descents that diverge and are "
            "no longer finite are not drawn.",
        ),
        Section(
            "Robustness to dimensions",
            figures=[
                draw_over_seeds(
                    "Range of step sizes against the dimension",
                    ("d", widths["d"].astype(float)),
                    ("decades of ε that arrive", dimensions),
                )
            ],
        ),
        Section("Measured by the probe", figures=[Panel(probed, "", "seed", "Loss after descent")]),
    ]


STUDY = LeastSquaresStudy()
