"""The theorems of Santurkar et al., in numbers: what they bound, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from landscape_cli.studies.contract import Claim, Findings
from landscape_cli.studies.distributions import first_batch
from landscape_cli.studies.estimates import mean_over_seeds
from landscape_cli.studies.landscapes import PAPER

if TYPE_CHECKING:
    from landscape_cli.figures.document import Section
    from landscape_cli.runs import Run
    from landscape_cli.studies.workbench import Trained, Workbench

GROUP = "normalisation_bounds"
ROUNDING = 1e-8
"""Relative; sums over a batch in float64, through a whole network and back, lose this much."""
PRINTED = (
    "As printed g_j, which is a maximum of squares already, is squared once more, and λ² is "
    "missing in two of three terms: the sides are not of the same degree in the loss, and whether "
    "it holds depends on the loss's unit. Proved is λ²γ²/σ²·(‖∇L‖² − ⟨1, ∇L⟩²/m − ⟨∇L, ŷ⟩²/m)."
)
NOT_ALIGNED = (
    "The bound is on the worst inputs. The proof takes X = λI to be the worst; but for other "
    "inputs XXᵀ∇L can lie closer to the steep directions of the Hessian than ∇L does."
)


class Theorems:
    """Theorems 4.1, 4.2, 4.4 and C.1, Observation 4.3 and Lemma 4.5, numerically."""

    name = "santurkar-theorems"
    title = "Theorems 4.1, 4.2, 4.4, C.1, Observation 4.3 and Lemma 4.5 in numbers"
    source = f"{PAPER}, §4 and Appendix C"

    def run(self, bench: Workbench) -> Findings:
        """Train dense and convolutional networks at ε = 0, and hold both sides to each other."""
        trained = {
            (kind, norm): [_train(bench, kind, norm, seed) for seed in bench.seeds]
            for kind in ("dense", "convolutional")
            for norm in ("none", "batch")
        }
        runs = {
            kind: [_probe(bench, item, seed) for seed, item in enumerate(trained[kind, "batch"])]
            for kind in ("dense", "convolutional")
        }
        every = [run for group in runs.values() for run in group]
        claims = [
            _identity_claim(
                every, "lipschitz", "4.1", "the gradient by a unit's inputs is shorter"
            ),
            _identity_claim(every, "smoothness", "4.2", "the quadratic form is lower"),
            _deviation_claim(runs),
            _minimax_claim(every),
            *_random_minimax_claims(bench),
            _curvature_claim(every),
            *(_configuration_claim(bench, trained, kind) for kind in runs),
            *_initialisation_claims(bench),
        ]
        return Findings(claims, _sections(runs))


def _model(bench: Workbench, kind: str, norm: str, seed: int) -> str:
    images = bench.images()
    exact = "&norm_eps=0" if norm == "batch" else ""
    style = f"norm={norm}&norm_position=before&seed={seed}{exact}"
    if kind == "dense":
        return f"sample:mlp?hidden=32,32&in_features={images.features}&{style}"
    return f"sample:vgg?config=8,M,16,16&{images.options}&{style}"


def _train(bench: Workbench, kind: str, norm: str, seed: int) -> Trained:
    steps = bench.choose(smoke=10, laptop=200, paper=2_000)
    return bench.train(
        f"{kind}-{norm}-{seed}",
        _model(bench, kind, norm, seed),
        bench.images().train,
        steps=steps,
        every=steps // 2,
        lr=0.1,
        seed=seed,
    )


def _probe(bench: Workbench, trained: Trained, seed: int) -> Run:
    units = bench.choose(smoke=2, laptop=8, paper=16)
    return bench.probe(
        trained.name,
        trained,
        measures=(f"{GROUP}?units={units}",),
        steps="1:2:1",
        batch_size=64,
        seed=seed,
    )


def _column(run: Run, name: str) -> np.ndarray:
    return np.asarray(run[f"{GROUP}/{name}"], dtype=np.float64).ravel()


def _quotients(run: Run, left: str, right: np.ndarray) -> np.ndarray:
    """Return left ÷ right over checkpoints and units where neither is zero or missing."""
    values = _column(run, left)
    usable = np.isfinite(values) & np.isfinite(right) & (right != 0) & (values != 0)
    return np.asarray(values[usable] / right[usable])


def _identity_claim(runs: Sequence[Run], side: str, number: str, what: str) -> Claim:
    """Return whether left ≤ right, which the proof gives as an equation at ε = 0."""
    quotients = np.concatenate(
        [_quotients(run, f"{side}_left", _column(run, f"{side}_right")) for run in runs]
    )
    error = float(np.abs(quotients - 1).max())
    return Claim(
        claim=f"Theorem {number}: with BatchNorm {what} by what the theorem says",
        source=f"{PAPER}, Theorem {number}",
        expected=f"left ÷ right within {ROUNDING:g} of 1 at ε = 0: the proof is of an equation",
        observed=f"largest |left ÷ right − 1| {error:.2g} over {len(quotients)} units and "
        f"checkpoints, {len(runs)} networks",
        holds=error < ROUNDING,
        explanation="The sides are differentiated independently of each other: the left one "
        "through the whole network.",
    )


def _deviation_claim(runs: dict[str, list[Run]]) -> Claim:
    """Return whether σ is large, which makes γ/σ small."""
    medians = [
        float(np.nanmedian(np.sqrt(np.concatenate([_column(run, "variance") for run in group]))))
        for group in zip(*runs.values(), strict=True)
    ]
    median = mean_over_seeds(medians)
    return Claim(
        claim="σ_j tends to be large in practice, so that the factor γ/σ flattens the landscape",
        source=f"{PAPER}, §4.2 and Fig. 8",
        expected="median σ over units and checkpoints above 1",
        observed=f"median σ {median}",
        holds=median.above(1.0),
        interval=median.interval,
    )


def _minimax_claim(runs: Sequence[Run]) -> Claim:
    """Return whether ‖∇_w L̂‖² stays below the bound of Theorem 4.4, as it is proved."""
    quotients = np.concatenate(
        [
            _quotients(
                run,
                "weight_lipschitz",
                _column(run, "input_norm") ** 2 * _column(run, "lipschitz_right"),
            )
            for run in runs
        ]
    )
    worst = float(quotients.max())
    return Claim(
        claim="Theorem 4.4, as it is proved: ‖∇_w L̂‖² ≤ λ²γ²/σ²·(‖∇L‖² − ⟨1, ∇L⟩²/m − ⟨∇L, ŷ⟩²/m)",
        source=f"{PAPER}, Theorem 4.4 and its proof",
        expected="left ÷ right at most 1 at every unit of trained networks",
        observed=f"largest left ÷ right {worst:.3g}, median {np.median(quotients):.2g}, over "
        f"{len(quotients)} units and checkpoints",
        holds=worst <= 1 + ROUNDING,
    )


def _random_minimax_claims(bench: Workbench) -> list[Claim]:
    """Return whether the maximum meets the bound, and whether the printed form is one."""
    from landscape_cli.studies.normalised_units import minimax_sides

    trials = bench.choose(smoke=20, laptop=1_000, paper=1_000)
    sides = [minimax_sides(seed) for seed in range(trials)]
    error = max(abs(side.left / side.corrected - 1) for side in sides)
    broken = sum(side.left > side.printed for side in sides)
    return [
        Claim(
            claim="Theorem 4.4, as it is proved, is tight: the worst inputs reach the bound",
            source=f"{PAPER}, Theorem 4.4 and its proof",
            expected=f"left ÷ right within {ROUNDING:g} of 1",
            observed=f"largest |left ÷ right − 1| {error:.2g} over {trials} random units",
            holds=error < ROUNDING,
        ),
        Claim(
            claim="Theorem 4.4, as it is printed: ĝ ≤ γ²/σ²·(g² − mμ² − λ²⟨∇L, ŷ⟩²)",
            source=f"{PAPER}, Theorem 4.4",
            expected="left at most right at every unit",
            observed=f"left above right at {broken} of {trials} random units",
            holds=broken == 0,
            explanation=PRINTED,
        ),
    ]


def _curvature_claim(runs: Sequence[Run]) -> Claim:
    """Return how often the curvature by the weights is above the bound of Theorem C.1."""
    above = total = 0
    for run in runs:
        left = _column(run, "weight_smoothness")
        right = _column(run, "input_norm") ** 4 * _column(run, "smoothness_right")
        usable = np.isfinite(left) & np.isfinite(right)
        margin = ROUNDING * np.abs(right[usable])
        above += int((left[usable] > right[usable] + margin).sum())
        total += int(usable.sum())
    return Claim(
        claim="Theorem C.1: (∇_w L̂)ᵀ ∂²L̂/∂w∂w (∇_w L̂) is at most λ⁴ times the right side of "
        "Theorem 4.2",
        source=f"{PAPER}, Theorem C.1",
        expected="left at most right at every unit of trained networks",
        observed=f"left above right at {above} of {total} units and checkpoints",
        holds=above == 0,
        explanation=NOT_ALIGNED if above else "",
    )


def _configuration_claim(
    bench: Workbench, trained: dict[tuple[str, str], list[Trained]], kind: str
) -> Claim:
    """Return whether γ = σ and β = μ let the BatchNorm network compute what the other does."""
    from landscape_cli.studies.normalised_units import activation_difference

    inputs, _ = first_batch(bench.images().train, 64)
    pairs = [
        activation_difference(
            item.model, _model(bench, kind, "batch", seed), item.checkpoints[-1], inputs
        )
        for seed, item in enumerate(trained[kind, "none"])
    ]
    error = max(difference for difference, _ in pairs)
    return Claim(
        claim="Observation 4.3: some γ and β give the BatchNorm network the same activations, so "
        "that all minima are preserved",
        source=f"{PAPER}, Observation 4.3",
        expected=f"with γ = σ and β = μ the outputs differ by less than {ROUNDING:g}, relatively",
        observed=f"{kind} network: largest difference {error:.2g} over {len(pairs)} seeds, with "
        f"γ and β moved by up to {max(moved for _, moved in pairs):.2g}",
        holds=error < ROUNDING,
    )


def _initialisation_claims(bench: Workbench) -> list[Claim]:
    """Return whether Lemma 4.5 holds for random units, and what it says."""
    from landscape_cli.studies.normalised_units import initialisation_sides

    trials = bench.choose(smoke=20, laptop=1_000, paper=1_000)
    sides = [initialisation_sides(seed) for seed in range(trials)]
    gap = max(side.left - side.right for side in sides)
    slope = max(side.slope for side in sides)
    lemma = "Lemma 4.5"
    return [
        Claim(
            claim=f"{lemma}: the nearest optimum with BatchNorm is nearer to the initialisation "
            "by the square of the lemma",
            source=f"{PAPER}, {lemma}",
            expected=f"‖W₀ − Ŵ*‖² at most the right side, up to {ROUNDING:g}",
            observed=f"largest left − right {gap:.2g} over {trials} random units: an equation",
            holds=gap < ROUNDING,
            explanation="Without the square, as it is sometimes quoted, it does not follow.",
        ),
        Claim(
            claim=f"{lemma}, its proof: every positive multiple of an optimum is one with "
            "BatchNorm",
            source=f"{PAPER}, {lemma}",
            expected=f"gradient there below {ROUNDING:g} of that at the initialisation",
            observed=f"largest share {slope:.2g} over {trials} random units",
            holds=slope < ROUNDING,
        ),
    ]


def _sections(runs: dict[str, list[Run]]) -> list[Section]:
    from landscape_cli.figures.document import Section
    from landscape_cli.figures.normalisation_bounds import draw_normalisation_bounds

    firsts = [group[0] for group in runs.values()]
    figure = draw_normalisation_bounds(firsts, labels=[f"{kind} network" for kind in runs])
    return [Section("Both sides over training", "Seed 0; ε = 0.", figures=[figure])]


STUDY = Theorems()
