"""What stands between a layer and its activation: one file per normalisation, one factory."""

from sample_models.normalisation.factory import NAMES, accepted_norm_options, make
from sample_models.normalisation.weight import normalise_weight

__all__ = ["NAMES", "accepted_norm_options", "make", "normalise_weight"]
