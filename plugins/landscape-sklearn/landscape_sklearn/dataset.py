"""A split of a table as a PyTorch data set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch.utils.data import TensorDataset

from landscape_cli.errors import AdapterError
from landscape_sklearn.preparation import Preparation
from landscape_sklearn.sources import Table


@dataclass(frozen=True)
class Scaling:
    """What was done to values: x ↦ (x − mean) / deviation.

    Attributes:
        mean: float64, in a shape that broadcasts to a sample.
        deviation: the same; 1 where the train part is constant.
    """

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Scaling:
        """Return what standardises `values`: feature by feature, images over all pixels."""
        axes = (0, 2, 3) if values.ndim == 4 else (0,)
        varies = np.ptp(values, axis=axes, keepdims=True)[0] > 0
        deviation = np.where(varies, values.std(axis=axes, keepdims=True)[0], 1.0)
        return cls(values.mean(axis=axes, keepdims=True)[0], deviation)

    @classmethod
    def identity(cls) -> Scaling:
        """Return what changes nothing."""
        return cls(np.zeros(1), np.ones(1))

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Return the values, scaled."""
        return np.asarray((values - self.mean) / self.deviation)


class SklearnDataset(TensorDataset):
    """Inputs and targets in memory, with what is known of them.

    Args:
        table: the whole data set.
        preparation: which part of it, and what is done to the values.

    Attributes:
        task: ``classification`` or ``regression``.
        class_names: by class number; empty in regression.
        feature_names: of the columns; empty where they have none.
        indices: rows of the whole set, in the order of the samples.
        input_scaling: how the inputs were changed.
        target_scaling: how regression targets were changed.

    Raises:
        AdapterError: If the set cannot be split like that.
    """

    def __init__(self, table: Table, preparation: Preparation) -> None:
        train, test = _split(table, preparation)
        self.task = table.task
        self.class_names = table.class_names
        self.feature_names = table.feature_names
        every = np.arange(len(table.inputs))
        self.indices = {"train": train, "test": test, "all": every}[preparation.split]
        regression = table.task == "regression"
        self.input_scaling = self.target_scaling = Scaling.identity()
        if preparation.standardise:
            self.input_scaling = Scaling.of(table.inputs[train])
            if regression:
                self.target_scaling = Scaling.of(table.targets[train])
        inputs = self.input_scaling.apply(table.inputs[self.indices])
        targets = self.target_scaling.apply(table.targets[self.indices])
        if preparation.flatten:
            inputs = inputs.reshape(len(inputs), -1)
        kind = getattr(torch, preparation.dtype)
        super().__init__(
            torch.from_numpy(inputs).to(kind),
            torch.from_numpy(targets).to(kind if regression else torch.int64),
        )

    @property
    def in_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.tensors[0].shape[1:])

    @property
    def num_classes(self) -> int | None:
        """Number of classes; None in regression."""
        return len(self.class_names) or None

    @property
    def num_outputs(self) -> int:
        """How many numbers a model should return: one per class, or per regression target."""
        return self.num_classes or int(self.tensors[1].shape[1])


def _split(table: Table, preparation: Preparation) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the train and of the test part, each in ascending order."""
    try:
        train, test = train_test_split(
            np.arange(len(table.inputs)),
            test_size=preparation.test_fraction,
            random_state=preparation.seed,
            stratify=table.targets if table.task == "classification" else None,
        )
    except ValueError as error:
        raise AdapterError(
            "the data cannot be split like that",
            seen=f"{len(table.inputs)} samples, test_fraction={preparation.test_fraction}",
            hint=str(error),
        ) from None
    return np.sort(train), np.sort(test)
