"""Batch normalisation with noise behind it: distributional shift on purpose."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from sample_models.normalisation.batch import make_batch
from sample_models.options import require_at_least


class ShiftingNoise(nn.Module):
    """a ← s·a + m with noise that is not centred, not of unit scale, and new at every step.

    Per feature j and step: μ ~ U(−n_μ, n_μ) and σ ~ U(1, n_σ). Per sample (and pixel) i:
    m ~ U(μ − r_μ, μ + r_μ) and s ~ N(σ, r_σ), with r_σ read as a standard deviation. Drawn from
    torch's global generator, in training mode only; evaluation mode hands its input on.

    Args:
        n_mu: n_μ, half the range of a feature's mean shift.
        n_sigma: n_σ, the largest mean stretch, 1 or more.
        r_mu: r_μ, half the range of a sample's shift around its feature's.
        r_sigma: r_σ, deviation of a sample's stretch around its feature's.

    Reference:
        Santurkar et al. (2018), Algorithm 1 and its constants, Appendix A.2.1.
    """

    def __init__(
        self, *, n_mu: float = 0.5, n_sigma: float = 1.25, r_mu: float = 0.1, r_sigma: float = 0.1
    ) -> None:
        super().__init__()
        require_at_least(0, n_mu=n_mu, r_mu=r_mu, r_sigma=r_sigma)
        require_at_least(1, n_sigma=n_sigma)
        self.n_mu, self.n_sigma, self.r_mu, self.r_sigma = n_mu, n_sigma, r_mu, r_sigma

    def forward(self, activations: Tensor) -> Tensor:
        """Return the perturbed activations, shape (N, features, …)."""
        if not self.training:
            return activations
        unit = (1, activations.shape[1], *[1] * (activations.dim() - 2))
        mean = self.n_mu * _symmetric(activations, unit)
        scale = 1 + (self.n_sigma - 1) * (_symmetric(activations, unit) + 1) / 2
        shift = mean + self.r_mu * _symmetric(activations, activations.shape)
        noise = torch.randn(activations.shape, dtype=activations.dtype, device=activations.device)
        return (scale + self.r_sigma * noise) * activations + shift

    def extra_repr(self) -> str:
        """Return the constants."""
        return f"n_mu={self.n_mu}, n_sigma={self.n_sigma}, r_mu={self.r_mu}, r_sigma={self.r_sigma}"


def _symmetric(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return draws of U(−1, 1)."""
    return 2 * torch.rand(shape, dtype=like.dtype, device=like.device) - 1


def make_noisy(
    features: int,
    dims: int,
    *,
    n_mu: float = 0.5,
    n_sigma: float = 1.25,
    r_mu: float = 0.1,
    r_sigma: float = 0.1,
    eps: float = 1e-5,
    normalise: bool = True,
) -> nn.Module:
    """Return torch's batch normalisation with `ShiftingNoise` behind its scale and shift.

    With ``normalise=False`` the noise comes alone, as in the paper's control (§2.1).
    """
    noise = ShiftingNoise(n_mu=n_mu, n_sigma=n_sigma, r_mu=r_mu, r_sigma=r_sigma)
    if not normalise:
        return noise
    return nn.Sequential(OrderedDict(normalise=make_batch(features, dims, eps=eps), noise=noise))
