"""Batch normalisation: torch's own layer for the number of spatial axes."""

from __future__ import annotations

from torch import nn

from sample_models.options import require_at_least

SMALLEST_EPS = 2.0**-1022
"""Stands for ε = 0, which torch refuses; it is 0 in float32."""

_LAYERS = {0: nn.BatchNorm1d, 1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def make_batch(
    features: int, dims: int, *, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True
) -> nn.Module:
    """Return batch normalisation, y = γ·(x − μ_B)/√(σ_B² + ε) + β per feature.

    Args:
        features: size of axis 1.
        dims: number of axes after the features: 0 for vectors, 2 for images.
        eps: ε, added to the (biased) variance of the batch; 0 is taken as 2⁻¹⁰²².
        momentum: share of the batch in the running statistics.
        affine: whether γ and β are trained; else they are 1 and 0.

    Reference:
        Ioffe and Szegedy (2015), Algorithm 1.
    """
    require_at_least(0, eps=eps, momentum=momentum)
    eps = max(eps, SMALLEST_EPS)
    return _LAYERS[dims](features, eps=eps, momentum=momentum, affine=affine)
