"""How the published studies train: BNP, and gradient descent on least squares."""

from sample_models.optim.bnp import BNP
from sample_models.optim.least_squares import (
    Descent,
    Moments,
    descend,
    descend_normalised,
    effective_step_size,
)

__all__ = [
    "BNP",
    "Descent",
    "Moments",
    "descend",
    "descend_normalised",
    "effective_step_size",
]
