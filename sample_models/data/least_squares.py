"""Linear regression data whose second moment has a known spectrum."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from landscape_cli.errors import AdapterError
from sample_models.data.samples import DType, Samples
from sample_models.options import require_at_least, require_seed


def make_least_squares(
    samples: int = 1000,
    *,
    features: int = 10,
    condition: float = 10.0,
    noise: float = 0.0,
    seed: int = 0,
    dtype: DType = "float32",
) -> Samples:
    """Return y = xᵀw* + noise, with mean(x) = 0 and H = mean(xxᵀ) exact to rounding.

    H has the eigenvalues 1 … 1/condition, evenly spaced in their logarithm, in a random basis.
    The noise is centred. Drawn in float64 with a generator of its own.

    Args:
        samples: number of pairs N, more than features.
        features: dimension d of x.
        condition: λ_max/λ_min of H.
        noise: deviation of the noise.
        seed: decides basis, x, w* and noise.
        dtype: of the tensors, shape (N, d) and (N, 1).

    Raises:
        AdapterError: If there are too few samples for their moment to have full rank.

    Reference:
        The linear regression model of Cai, Li and Shen (2019).
    """
    require_at_least(1, samples=samples, features=features, condition=condition)
    require_at_least(0, noise=noise)
    require_seed(seed)
    if samples <= features:
        raise AdapterError(
            "least squares needs more samples than features",
            seen=f"samples={samples}, features={features}",
            hint=f"samples={features + 1} or more",
        )
    generator = torch.Generator().manual_seed(seed)
    white: Tensor = _whitened(_normal(generator, samples, features))
    basis = torch.linalg.qr(_normal(generator, features, features)).Q
    exponents = torch.linspace(0, -1, features, dtype=torch.float64)
    inputs = (white * torch.tensor(float(condition)).double() ** (exponents / 2)) @ basis.T
    slopes = _normal(generator, features, 1)
    disturbance = noise * _normal(generator, samples, 1)
    targets = inputs @ slopes + disturbance - disturbance.mean()
    kind = getattr(torch, dtype)
    return Samples(inputs.to(kind), targets.to(kind))


def _normal(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def _whitened(values: Tensor) -> Tensor:
    """Return the values with mean 0 and second moment I over the rows."""
    centred = values - values.mean(0)
    orthonormal: Tensor = torch.linalg.qr(centred).Q
    return orthonormal * math.sqrt(len(values))
