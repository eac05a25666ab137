"""scikit-learn's data sets for landscape: ``--data sklearn:digits``."""

from landscape_sklearn.adapter import open_dataset
from landscape_sklearn.dataset import SklearnDataset

__all__ = ["SklearnDataset", "open_dataset"]
