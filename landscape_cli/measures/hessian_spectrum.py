"""The spectrum of the Hessian: largest eigenvalues, trace and density."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from landscape_cli import randomness
from landscape_cli.curvature import hessian, second_derivative_problem, top_of
from landscape_cli.errors import SpecError
from landscape_cli.lanczos import Eigenpairs, Quadrature, SymmetricMatrix, quadrature
from landscape_cli.measures.contract import Arrays, Field
from landscape_cli.site import Site

CURVATURE = "loss per squared distance"
BINS = 256
BROADENING = 0.01
"""Standard deviation of the density's Gaussians, as a share of the spectrum's width."""
MARGIN = 5
"""Standard deviations that the density goes on beyond the outermost nodes."""


class HessianSpectrum:
    """Largest eigenvalues, trace and spectral density of the Hessian over all parameters.

    - ``eigenvalue``: the k algebraically largest, descending, by thick-restart Lanczos with full
      reorthogonalisation; ``residual`` is ‖Hv − λv‖; ``smallest`` is the other end.
    - ``trace``: Σλᵢ + the mean over probes v of vᵀHv − Σλᵢ⟨v, vᵢ⟩², which is unbiased whatever
      the eigenpairs are worth and has less variance the more they carry (Hutchinson's estimator
      with the top taken out); ``trace_error`` is its standard error over the probes.
    - ``density``: stochastic Lanczos quadrature, Gaussians of 1 % of the spectrum's width at the
      nodes, an integral of one; nodes and weights are kept as well.

    Where the model has no more parameters than the basis has vectors, all eigenvalues are known
    and the trace is exact. Products with the Hessian are taken in the run's type, so that
    residuals go down to √ε of the largest magnitude, all else in float64. In memory are
    max(2k + 12, 24) vectors of parameters, or `steps` of them.

    Args:
        k: eigenvalues.
        probes: random sign vectors for trace and density.
        steps: products per probe, and nodes of its quadrature.
        products: products with the Hessian after which eigenvalues are given as they are.
        seed: of the random vectors; the run's, if it is not given.

    Raises:
        SpecError: If one of them is not a whole number from 1.

    Reference:
        Ghorbani, Krishnan and Xiao (2019), "An investigation into neural net optimization via
        Hessian eigenvalue density"; Wu and Simon (2000); Hutchinson (1990).
    """

    name: ClassVar[str] = "hessian_spectrum"
    fields: ClassVar[Mapping[str, Field]] = {
        "rank": Field(("rank",), "", "rank from the largest, 0 first", "int64"),
        "bin": Field(("bin",), "", "bin of the density", "int64"),
        "probe": Field(("probe",), "", "random vector", "int64"),
        "node": Field(("node",), "", "node of the quadrature", "int64"),
        "eigenvalue": Field(("checkpoint", "rank"), CURVATURE, "largest eigenvalues, descending"),
        "residual": Field(("checkpoint", "rank"), CURVATURE, "ℓ2 norm of Hv − λv"),
        "smallest": Field(("checkpoint",), CURVATURE, "smallest eigenvalue"),
        "trace": Field(("checkpoint",), CURVATURE, "trace"),
        "trace_error": Field(("checkpoint",), CURVATURE, "standard error of the trace"),
        "density": Field(("checkpoint", "bin"), "", "spectral density, integral one"),
        "density_eigenvalue": Field(("checkpoint", "bin"), CURVATURE, "where the density is"),
        "quadrature_node": Field(("checkpoint", "probe", "node"), CURVATURE, "Ritz values"),
        "quadrature_weight": Field(("checkpoint", "probe", "node"), "", "weights, sum one"),
    }

    def __init__(
        self,
        k: int = 5,
        probes: int = 8,
        steps: int = 32,
        products: int = 1000,
        seed: int | None = None,
    ) -> None:
        for name, value in (("k", k), ("probes", probes), ("steps", steps), ("products", products)):
            if not isinstance(value, int) or value < 1:
                raise SpecError(f"{name} is not a whole number from 1", seen=value, hint="k=5")
        self.k, self.probes, self.steps, self.products = k, probes, steps, products
        self.seed = seed

    def refusal(self, site: Site) -> str:
        """Refuse a model without second derivatives, or a point where nothing is finite."""
        if not math.isfinite(site.gradient_norm):
            return "the gradient at the checkpoint is not finite"
        return second_derivative_problem(site.objective)

    def measure(self, site: Site) -> Arrays:
        """Return every field; eigenvalues beyond the number of parameters are NaN."""
        seed = site.seed if self.seed is None else self.seed
        pairs = top_of(site.objective, self.k, seed, self.products)
        if not pairs.converged:
            worst = float(pairs.residuals.max())
            text = (
                f"eigenvalues have not converged in {self.products} products, residual {worst:.1e}"
            )
            site.notices.append(f"{self.name}: {text}")
        matrix = hessian(site.objective)
        seen, shares = self._probed(matrix, pairs, seed)
        trace, error = _trace(matrix.size, pairs, seen, shares)
        nodes, weights = self._padded(seen)
        where, density = _density(nodes, weights)
        return {
            **{name: np.arange(size) for name, size in self._sizes().items()},
            "eigenvalue": _to_length(pairs.values, self.k),
            "residual": _to_length(pairs.residuals, self.k),
            "smallest": np.array(pairs.smallest),
            "trace": np.array(trace),
            "trace_error": np.array(error),
            "density": density,
            "density_eigenvalue": where,
            "quadrature_node": nodes,
            "quadrature_weight": weights,
        }

    def _sizes(self) -> dict[str, int]:
        return {"rank": self.k, "bin": BINS, "probe": self.probes, "node": self.steps}

    def _probed(
        self, matrix: SymmetricMatrix, pairs: Eigenpairs, seed: int
    ) -> tuple[list[Quadrature], np.ndarray]:
        """Return each probe's quadrature and Σλᵢ⟨v, vᵢ⟩²."""
        seen, shares = [], []
        for index in range(self.probes):
            generator = torch.Generator()
            generator.manual_seed(randomness.derived_seed(seed, "probe", index))
            probe = matrix.drawn(generator, signs=True)
            seen.append(quadrature(matrix, probe, self.steps))
            overlaps = (pairs.vectors @ probe).square().cpu()
            shares.append(float(overlaps @ pairs.values))
        return seen, np.array(shares)

    def _padded(self, seen: list[Quadrature]) -> tuple[np.ndarray, np.ndarray]:
        """Return nodes and weights as arrays, NaN and 0 where a space closed early."""
        nodes = np.full((self.probes, self.steps), np.nan)
        weights = np.zeros((self.probes, self.steps))
        for row, found in enumerate(seen):
            nodes[row, : len(found.nodes)] = found.nodes.numpy()
            weights[row, : len(found.nodes)] = found.weights.numpy()
        return nodes, weights


def _to_length(values: torch.Tensor, length: int) -> np.ndarray:
    padded = np.full(length, np.nan)
    padded[: len(values)] = values.cpu().numpy()
    return padded


def _trace(
    size: int, pairs: Eigenpairs, seen: list[Quadrature], shares: np.ndarray
) -> tuple[float, float]:
    """Return the trace and its standard error; NaN for the error of one probe."""
    if pairs.complete is not None:
        return float(pairs.complete.sum()), 0.0
    forms = np.array([float(found.weights @ found.nodes) for found in seen])
    rests = size * (forms - shares)
    error = rests.std(ddof=1) / math.sqrt(len(rests)) if len(rests) > 1 else math.nan
    return float(pairs.values.sum() + rests.mean()), float(error)


def _density(nodes: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where the density is taken, and the mean over the probes of their Gaussians."""
    low, high = np.nanmin(nodes), np.nanmax(nodes)
    width = BROADENING * max(high - low, abs(high), abs(low), np.finfo(np.float64).tiny)
    where = np.linspace(low - MARGIN * width, high + MARGIN * width, BINS)
    present = np.isfinite(nodes)
    offsets = (where[:, None] - nodes[present]) / width
    heights = np.exp(-0.5 * offsets**2) / (width * math.sqrt(2 * math.pi))
    return where, heights @ weights[present] / len(nodes)
