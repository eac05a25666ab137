"""Runs made of formulas: every variable of the file format, no network behind it.

The landscape at a checkpoint is a parabola along every direction, with curvature `curvature` and
an optional cubic term, so that loss range, gradient change and β* are known in closed form.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from landscape_cli.runs import FORMAT, FORMAT_VERSION, Run, Variable

POINTS = ("checkpoint", "direction", "step")
LINES = ("checkpoint", "direction")


def synthetic_run(
    checkpoints: int = 16,
    directions: Sequence[str] = ("gradient",),
    steps: int = 16,
    *,
    curvature: float | Sequence[float] = 4.0,
    base_loss: float | Sequence[float] | None = None,
    lr: float = 0.1,
    seed: int = 0,
    noise: float = 0.1,
    first_step: int = 0,
    stride: int = 100,
    multiples: Sequence[float] | None = None,
    source: str = "runs/synthetic.h5",
    settings: Mapping[str, Any] | None = None,
) -> Run:
    """Return a run whose lines are L₀ − a‖g‖² + a²h‖g‖²/2, with log-normal noise in h.

    Along every direction ‖Δg‖ = a·h·‖g‖, the distance a·‖g‖ and β* = h.
    """
    generator = np.random.default_rng(seed)
    grid = np.geomspace(0.5, 4.0, steps) if multiples is None else np.asarray(multiples, float)
    shape = (checkpoints, len(directions), len(grid))
    mean = np.broadcast_to(np.asarray(curvature, float), (checkpoints,))[:, None]
    h = mean * np.exp(noise * generator.standard_normal(shape[:2]))
    if base_loss is None:
        base_loss = 0.1 + 2.2 * np.exp(-3.0 * np.arange(checkpoints) / max(checkpoints - 1, 1))
    base = np.broadcast_to(np.asarray(base_loss, float), (checkpoints,)).copy()
    norm = 0.5 + base
    sizes = np.broadcast_to(lr * grid, (checkpoints, len(grid)))
    a, g, b = sizes[:, None, :], norm[:, None, None], h[:, :, None]
    run = Run({}, _attributes(lr, seed, grid, directions, settings or {}), source)
    _add_axes(run, directions, grid, sizes, first_step + stride * np.arange(checkpoints), lr)
    _add(run, "base_loss", ("checkpoint",), base)
    _add(run, "gradient_norm", ("checkpoint",), norm)
    _add(run, "noise_floor", ("checkpoint",), 1e-6 * norm)
    _add(run, "loss", POINTS, base[:, None, None] - a * g**2 + a**2 * b * g**2 / 2)
    _add(run, "gradient_change", POINTS, np.abs(a) * b * g)
    _add(run, "gradient_cosine", POINTS, np.broadcast_to(np.sign(1 - a * b), shape).copy())
    _add(run, "distance", POINTS, np.broadcast_to(np.abs(a) * g, shape).copy())
    _add(run, "status", POINTS, np.ones(shape, np.uint8))
    return summarised(run)


def summarised(run: Run) -> Run:
    """Return the run with smoothness, noise flags and the three basic measures worked out anew."""
    run = Run(dict(run.variables), dict(run.attributes), run.source)
    change, distance, status = run["gradient_change"], run["distance"], run["status"]
    with np.errstate(invalid="ignore", divide="ignore"):
        smoothness = np.where(distance > 0, change / distance, np.nan)
    _add(run, "smoothness", POINTS, smoothness)
    floor = run["noise_floor"][:, None, None]
    _add(run, "below_noise_floor", POINTS, (change <= floor).astype(np.uint8))
    for group, values in (("loss_range", run["loss"]), ("gradient_predictiveness", change)):
        low, high = _finite_range(np.where(status > 0, values, np.nan))
        _add(run, f"{group}/minimum", LINES, low)
        _add(run, f"{group}/maximum", LINES, high)
    beta = _finite_range(smoothness)[1]
    at = np.argmax(np.where(np.isfinite(smoothness), smoothness, -np.inf), axis=-1)
    with np.errstate(invalid="ignore"):
        rivals = np.where(np.isfinite(smoothness), smoothness, -np.inf)[..., 1:]
        rivalled = (rivals >= beta[..., None] * (1 - 1e-6)).any(-1)
    at_smallest = ~rivalled & np.isfinite(beta)
    rates = run["learning_rate"][:, None]
    half = (
        np.take_along_axis(change, at[..., None], -1)[..., 0] >= run["gradient_norm"][:, None] / 2
    )
    group = "effective_smoothness"
    _add(run, f"{group}/beta", LINES, beta)
    _add(run, f"{group}/step_multiple_at_beta", LINES, run["step_multiple"][at])
    _add(run, f"{group}/at_smallest_step", LINES, at_smallest.astype(np.uint8))
    _add(run, f"{group}/saturated", LINES, (at_smallest & half).astype(np.uint8))
    _add(run, f"{group}/limit", LINES, 0.95 * beta)
    _add(run, f"{group}/beta_times_lr", LINES, beta * rates)
    return run


def changed(run: Run, **arrays: np.ndarray) -> Run:
    """Return a copy with variables replaced (``/`` in a path is ``__``), nothing worked out."""
    variables = dict(run.variables)
    for name, values in arrays.items():
        path = name.replace("__", "/")
        variables[path] = dataclasses.replace(variables[path], values=np.asarray(values))
    return Run(variables, dict(run.attributes), run.source)


def damaged(run: Run, status: int, checkpoint: Any, step: Any = slice(None)) -> Run:
    """Return a copy where some points have that status, and NaN or infinity to go with it."""
    place = (checkpoint, slice(None), step)
    arrays = {name: run[name].copy() for name in ("loss", "gradient_change", "distance", "status")}
    arrays["status"][place] = status
    arrays["gradient_change"][place] = np.nan
    arrays["loss"][place] = {0: np.nan, 2: np.inf}.get(status, 1.0)
    if status == 0:
        arrays["distance"][place] = np.nan
    partial = changed(run, **arrays)
    if status == 0:
        partial.attributes["status"] = "partial"
    return summarised(partial)


def with_measures(run: Run, *, layers: int = 5, seed: int = 0) -> Run:
    """Return the run with a plane and every further measure of the file format."""
    run = Run(dict(run.variables), dict(run.attributes), run.source)
    generator = np.random.default_rng(seed)
    count, steps = len(run["checkpoint"]), len(run["step"])
    names = np.array([f"features.{index}" for index in range(layers)], dtype=object)
    units = np.array([f"{layer}:{unit}" for layer in names for unit in range(4)], dtype=object)
    by_layer, by_unit = ("checkpoint", "layer"), ("checkpoint", "unit")
    positive = lambda *shape: np.exp(generator.standard_normal(shape))  # noqa: E731

    for group in ("covariate_shift", "activation_smoothness", "activations"):
        _add(run, f"{group}/layer", ("layer",), names)
    _add(run, "covariate_shift/l2", by_layer, positive(count, layers))
    _add(run, "covariate_shift/cosine", by_layer, generator.uniform(-1, 1, (count, layers)))
    wide = (*LINES, "layer")
    _add(run, "activation_smoothness/beta", wide, positive(count, len(run["direction"]), layers))
    _add(run, "activation_smoothness/quadratic_form", by_layer, positive(count, layers))
    _add(run, "activations/mean", by_layer, generator.standard_normal((count, layers)))
    _add(run, "activations/variance", by_layer, positive(count, layers))
    edges = np.linspace(-4, 4, 21)
    _add(run, "activations/bin_edges", ("layer", "bin_edge"), np.tile(edges, (layers, 1)))
    histogram = generator.integers(0, 500, (count, layers, 20)).astype(float)
    _add(run, "activations/histogram", (*by_layer, "bin"), histogram)
    for group in ("conditioning", "normalisation_bounds"):
        _add(run, f"{group}/unit", ("unit",), units)
    for name in ("hessian", "preconditioned", "scaling"):
        _add(
            run, f"conditioning/{name}", by_unit, 10 ** generator.uniform(1, 6, (count, len(units)))
        )
    for name in ("lipschitz", "smoothness"):
        _add(run, f"normalisation_bounds/{name}_left", by_unit, positive(count, len(units)))
        _add(run, f"normalisation_bounds/{name}_right", by_unit, positive(count, len(units)))
    eigenvalues = -np.sort(-positive(count, 6), axis=1)
    _add(run, "hessian_spectrum/eigenvalue", ("checkpoint", "rank"), eigenvalues)
    _add(run, "hessian_spectrum/trace", ("checkpoint",), eigenvalues.sum(1) * 3)
    paths = positive(count, steps, 12)
    paths[:, -1, 6:] = np.inf
    diverged = np.zeros((count, steps), np.uint8)
    diverged[:, -1] = 1
    _add(run, "learning_rate_range/loss", ("checkpoint", "step", "iteration"), paths)
    _add(run, "learning_rate_range/diverged", ("checkpoint", "step"), diverged)
    return with_plane(run)


def with_plane(run: Run, points: int = 21) -> Run:
    """Return the run with a two-dimensional loss surface and a trajectory on it."""
    run = Run(dict(run.variables), dict(run.attributes), run.source)
    count = len(run["checkpoint"])
    x, y = np.linspace(-1, 1, points), np.linspace(-2, 2, points + 4)
    surface = 0.01 + x[None, :] ** 2 + 10 * (y[:, None] - x[None, :] ** 2) ** 2
    _add(run, "plane/plane_x", ("plane_x",), x)
    _add(run, "plane/plane_y", ("plane_y",), y)
    _add(run, "plane/loss", ("checkpoint", "plane_y", "plane_x"), np.tile(surface, (count, 1, 1)))
    _add(run, "plane/trajectory_x", ("checkpoint",), np.linspace(-0.9, 0, count))
    _add(run, "plane/trajectory_y", ("checkpoint",), np.linspace(1.5, 0, count))
    return run


def _add(run: Run, path: str, dims: tuple[str, ...], values: Any) -> None:
    run.variables[path] = Variable(dims, np.asarray(values))


def _add_axes(run, directions, grid, sizes, training_steps, lr) -> None:
    count = len(training_steps)
    labels = np.array([f"step-{step}" for step in training_steps], dtype=object)
    _add(run, "checkpoint", ("checkpoint",), labels)
    _add(run, "training_step", ("checkpoint",), np.asarray(training_steps, np.int64))
    _add(run, "learning_rate", ("checkpoint",), np.full(count, lr))
    hashes = np.array([f"{index:064x}" for index in range(count)], dtype=object)
    _add(run, "checkpoint_sha256", ("checkpoint",), hashes)
    _add(run, "direction", ("direction",), np.array(list(directions), dtype=object))
    _add(run, "step", ("step",), np.arange(len(grid)))
    _add(run, "step_multiple", ("step",), grid)
    _add(run, "step_size", ("checkpoint", "step"), sizes.copy())


def _finite_range(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    finite = np.isfinite(values)
    low = np.where(finite, values, np.inf).min(-1)
    high = np.where(finite, values, -np.inf).max(-1)
    none = ~finite.any(-1)
    return np.where(none, np.nan, low), np.where(none, np.nan, high)


def _attributes(lr, seed, grid, directions, settings) -> dict[str, Any]:
    resolved = {
        "checkpoints": ["run"],
        "model": "sample:vgg",
        "data": "sklearn:digits",
        "loss": "cross-entropy",
        "batch_size": 128,
        "batches": 1,
        "lr": lr,
        "steps": f"{grid[0]:g}:{grid[-1]:g}:{len(grid)}:log",
        "directions": list(directions),
        "norm_mode": "batch",
        "dtype": "float32",
        "seed": seed,
        **settings,
    }
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "status": "complete",
        "created": "2025-01-01T00:00:00+00:00",
        "command": "landscape probe run --model sample:vgg --data sklearn:digits -o run.h5",
        "settings": json.dumps(resolved, sort_keys=True),
        "notices": "[]",
        "versions": json.dumps({"landscape_cli": "0.1.0", "torch": "2.13.0"}),
        "device": "cpu",
        "seed": seed,
        "data_sha256": "0" * 64,
    }
