"""The deep linear network's data: a Gaussian, and its image under a Gaussian matrix."""

from __future__ import annotations

import torch

from sample_models.data.samples import DType, Samples
from sample_models.options import require_at_least, require_seed


def make_gaussian(
    samples: int = 1000, *, features: int = 10, seed: int = 0, dtype: DType = "float32"
) -> Samples:
    """Return x ~ N(0, I) and y = A x, where A has independent standard normal entries.

    Drawn in float64 with a generator of its own and rounded to `dtype` at the end.

    Args:
        samples: number of pairs.
        features: dimension of x and of y; A is features × features.
        seed: decides A and x.
        dtype: of the tensors, shape (samples, features) each.

    Reference:
        Santurkar et al. (2018), Appendix A.1: 1000 samples, 10 dimensions.
    """
    require_at_least(1, samples=samples, features=features)
    require_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(features, features, generator=generator, dtype=torch.float64)
    inputs = torch.randn(samples, features, generator=generator, dtype=torch.float64)
    kind = getattr(torch, dtype)
    return Samples(inputs.to(kind), (inputs @ matrix.T).to(kind))
