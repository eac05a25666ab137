"""Gradient descent on one least squares problem, with and without BN, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from landscape_cli import batches, randomness
from landscape_cli.adapters.building import build_data
from sample_models.optim import Moments, descend, descend_normalised, effective_step_size

REACHED = 1e-6
"""Gap to the smallest loss, as a share of what can be explained, at which descent has arrived."""


@dataclass(frozen=True)
class Problem:
    """A problem with known spectrum, and the weights that descent starts from.

    Attributes:
        moments: of the data.
        start: w₀, of norm 1 in a random direction, shape (d,).
    """

    moments: Moments
    start: Tensor

    @classmethod
    def of(cls, spec: str, samples: int, seed: int) -> Problem:
        """Take the moments of all samples of a data spec."""
        inputs, targets = batches.draw(build_data(spec), samples, 1, seed).batches[0]
        generator = torch.Generator().manual_seed(randomness.derived_seed(seed, "start"))
        start = torch.randn(inputs.shape[1], generator=generator, dtype=torch.float64)
        return cls(Moments.of(inputs, targets), start / torch.linalg.vector_norm(start))

    @property
    def scale(self) -> float:
        """The best a for w₀: a₀ = w₀ᵀg/σ₀, from which descent with BN starts."""
        deviation = (self.start @ self.moments.H @ self.start).sqrt()
        return float(self.start @ self.moments.g / deviation)

    def gaps(self, losses: Tensor) -> np.ndarray:
        """Return (J − J*)/(½E[y²] − J*), in the shape of the losses."""
        smallest = self.moments.minimum
        return np.asarray((losses - smallest) / (0.5 * self.moments.c - smallest))

    def plain(self, multiples: np.ndarray, steps: int) -> np.ndarray:
        """Return the gaps of gradient descent, shape (steps + 1, K).

        Args:
            multiples: step sizes as multiples of 2/λ_max, shape (K,).
            steps: how many.
        """
        rates = torch.as_tensor(multiples) * self.moments.largest_step
        return self.gaps(descend(self.moments, self.start, rates, steps).losses)

    def normalised(
        self, multiples: np.ndarray, steps: int, *, scale_rate: float = 1.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the gaps of descent with BN, (steps + 1, K), and its last effective step sizes.

        Args:
            multiples: step sizes ε as multiples of 2/λ_max, shape (K,).
            steps: how many.
            scale_rate: ε_a.
        """
        rates = torch.as_tensor(multiples) * self.moments.largest_step
        found = descend_normalised(
            self.moments, self.start, rates, steps, scale=self.scale, scale_step_size=scale_rate
        )
        effective = effective_step_size(self.moments, found, rates)
        return self.gaps(found.losses), np.asarray(effective)

    def contraction(self, step_sizes: np.ndarray) -> np.ndarray:
        """Return ρ², by which a step of BN descent shrinks the gap near a minimiser.

        ρ = max|1 − ε̂λ| over the eigenvalues λ of H* but the one that is zero along u.
        """
        spectrum = torch.linalg.eigvalsh(self.moments.normalised_hessian).numpy()[1:]
        factors = np.abs(1 - np.multiply.outer(step_sizes, spectrum))
        return np.asarray(factors.max(axis=1) ** 2)

    @property
    def conditions(self) -> tuple[float, float]:
        """κ(H), and κ(H*) over the spectrum that is not zero."""
        plain = torch.linalg.eigvalsh(self.moments.H)
        normalised = torch.linalg.eigvalsh(self.moments.normalised_hessian)[1:]
        return float(plain[-1] / plain[0]), float(normalised[-1] / normalised[0])


def arrived(gaps: np.ndarray, steps: int | None = None) -> np.ndarray:
    """Return which descents have arrived after so many steps, by default the last, shape (K,)."""
    ends = gaps[-1 if steps is None else steps]
    return np.asarray(np.isfinite(ends) & (ends <= REACHED))


def steps_to_arrive(gaps: np.ndarray) -> np.ndarray:
    """Return the first step from which a descent is at the minimum; inf where there is none."""
    there = np.isfinite(gaps) & (gaps <= REACHED)
    return np.where(there.any(axis=0), there.argmax(axis=0), np.inf)


def decades(multiples: np.ndarray, usable: np.ndarray) -> float:
    """Return the width of the range of usable step sizes, in decades; 0 without any.

    Example:
        >>> decades(np.array([0.1, 1.0, 10.0]), np.array([True, True, False]))
        1.0
    """
    found = np.log10(multiples[usable])
    return float(found[-1] - found[0]) if found.size else 0.0


def observed_contraction(gaps: np.ndarray) -> np.ndarray:
    """Return the mean factor per step by which gaps shrink between 10⁻⁸ and 10⁻¹²; NaN if unseen.

    Above, the faster modes still show; below, rounding does.
    """
    found = np.full(gaps.shape[1], np.nan)
    for place, column in enumerate(gaps.T):
        inside = np.flatnonzero((column < 1e-8) & (column > 1e-12))
        if len(inside) > 10 and inside[-1] - inside[0] + 1 == len(inside):
            first, last = inside[len(inside) // 2], inside[-1]
            found[place] = (column[last] / column[first]) ** (1 / (last - first))
    return found
