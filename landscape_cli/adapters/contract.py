"""The whole contract of a model or data adapter, on one screen.

An adapter is a callable, registered under an entry-point group of its distribution::

    [project.entry-points."landscape_cli.models"]
    mine = "my_package.adapter:build"

so that ``--model mine:TARGET?key=value`` calls ``build("TARGET", key=value)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import Dataset

MODEL_GROUP = "landscape_cli.models"
DATA_GROUP = "landscape_cli.data"
MEASURE_GROUP = "landscape_cli.measures"


class ModelAdapter(Protocol):
    """Build a model. Its weights are replaced by the checkpoint's, so initialise freely."""

    def __call__(self, target: str, **options: Any) -> nn.Module:
        """Return the module, on the CPU. Raise `AdapterError` for a target you do not know."""
        ...


class DataAdapter(Protocol):
    """Open a data set.

    A `torch.utils.data.Dataset` is sampled with the seed of the run; its samples are collated
    by its attribute ``collate_fn`` if it has one, else by PyTorch's default. Anything else that
    can be iterated yields batches, taken in order. A batch is ``(input, target)``, a mapping,
    or an object with both.
    """

    def __call__(self, target: str, **options: Any) -> Dataset[Any] | Iterable[Any]:
        """Return the data. Raise `AdapterError` for a target you do not know."""
        ...
