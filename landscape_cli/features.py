"""The inputs of a layer's units over a whole objective: extended, centred and normalised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = torch.finfo(torch.float64).eps


@dataclass(frozen=True)
class Features:
    """Ĥ = [e, H], ĤU = [e, H − eμᵀ] and Ĝ = ĤUD of Lange et al. (2022), §3.3, float64.

    Features that do not vary have σ = 0 and are left out.

    Attributes:
        extended: Ĥ, shape (rows, 1 + features).
        centred: ĤU.
        normalised: Ĝ.
        deviations: σ, biased, shape (features,).
        left_out: how many features do not vary.
    """

    extended: Tensor
    centred: Tensor
    normalised: Tensor
    deviations: Tensor
    left_out: int

    @classmethod
    def of(cls, rows: Tensor) -> Features:
        """Take H, shape (rows, weights of a unit)."""
        varies = rows.amax(0) != rows.amin(0)
        kept = rows[:, varies].double()
        ones = kept.new_ones(len(kept), 1)
        variance, mean = torch.var_mean(kept, dim=0, correction=0)
        centred = kept - mean
        deviations = variance.sqrt()
        return cls(
            torch.cat([ones, kept], 1),
            torch.cat([ones, centred], 1),
            torch.cat([ones, centred / deviations], 1),
            deviations,
            int((~varies).sum()),
        )

    @property
    def size(self) -> int:
        """How many (bias, weights) are kept."""
        return self.extended.shape[1]

    def scaling(self) -> float:
        """Return κ(D) of D = diag(1, 1/σ)."""
        scales: list[float] = [1.0, *self.deviations.tolist()]
        return max(scales) / min(scales)

    def matrix_conditions(self) -> tuple[float, float, float]:
        """Return κ(Ĥ), κ(ĤU) and κ(Ĝ); NaN unless Ĥ has full column rank."""
        if len(self.extended) < self.size or not bool(torch.isfinite(self.extended).all()):
            return math.nan, math.nan, math.nan
        values = [_singular_values(m) for m in (self.extended, self.centred, self.normalised)]
        first = values[0]
        if first[-1] <= max(self.extended.shape) * EPSILON * first[0]:
            return math.nan, math.nan, math.nan
        extended, centred, normalised = (float(v[0] / v[-1]) for v in values)
        return extended, centred, normalised


def _singular_values(matrix: Tensor) -> Tensor:
    """Return the singular values, descending; of the triangular factor, which has the same."""
    values: Tensor = torch.linalg.svdvals(torch.linalg.qr(matrix, mode="r").R)
    return values


class Compression:
    """Turns S of a unit into matrices with the nonzero eigenvalues of ĤᵀSĤ and ĜᵀSĜ.

    With Q an orthonormal basis of what Ĥ and Ĝ span (the identity where there are no more rows
    than columns) and B = QᵀSQ, ĤᵀSĤ = RᵀBR with R = QᵀĤ. Where R has fewer rows than columns,
    RᵀBR has the nonzero eigenvalues of the smaller T B Tᵀ with Rᵀ = ZT, Z orthonormal.
    """

    def __init__(self, features: Features) -> None:
        rows, size = features.extended.shape
        self.basis: Tensor | None = None
        extended, normalised = features.extended, features.normalised
        if rows > size:
            self.basis = torch.linalg.qr(normalised).Q
            extended, normalised = self.basis.T @ extended, self.basis.T @ normalised
        self._sides = [_outer_factor(extended), _outer_factor(normalised)]

    def spectra(self, cores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the eigenvalues of ĤᵀSĤ and ĜᵀSĜ, zeros among them left out or not.

        Args:
            cores: B of every unit, shape (units, r, r).
        """
        symmetric = (cores + cores.transpose(1, 2)) / 2
        plain, normalised = (_eigenvalues(side @ symmetric @ side.T) for side in self._sides)
        return plain, normalised


def _outer_factor(factor: Tensor) -> Tensor:
    """Return M with M B Mᵀ as small as it can be and the nonzero spectrum of FᵀBF."""
    rows, size = factor.shape
    return torch.linalg.qr(factor.T, mode="r").R if rows < size else factor.T


def _eigenvalues(matrices: Tensor) -> Tensor:
    finite = torch.isfinite(matrices).flatten(1).all(1)
    safe = torch.where(finite[:, None, None], matrices, 0.0)
    values = torch.linalg.eigvalsh((safe + safe.transpose(1, 2)) / 2)
    return torch.where(finite[:, None], values, torch.nan)


def spectral_condition(eigenvalues: Sequence[float] | Tensor, size: int) -> tuple[float, int]:
    """Return κ over the nonzero spectrum, and how many eigenvalues are in it.

    κ = max|λ| ÷ min|λ| over the eigenvalues with |λ| > n·ε·max|λ|, ε of float64.

    Args:
        eigenvalues: of a symmetric matrix, any order.
        size: n, its dimension.

    Returns:
        κ, NaN where nothing is nonzero or a value is not finite; and the number of nonzero ones.

    Example:
        >>> spectral_condition([4.0, -2.0, 1e-20], 3)
        (2.0, 2)
    """
    magnitudes = torch.as_tensor(eigenvalues, dtype=torch.float64).abs()
    largest = float(magnitudes.max()) if len(magnitudes) else 0.0
    if not math.isfinite(largest) or largest == 0:
        return math.nan, 0
    kept = magnitudes[magnitudes > size * EPSILON * largest]
    return largest / float(kept.min()), len(kept)
