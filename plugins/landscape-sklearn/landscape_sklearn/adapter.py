"""The adapter ``sklearn``: ``--data sklearn:digits?split=test&flatten=True``."""

from __future__ import annotations

from typing import Any

from landscape_cli.errors import AdapterError
from landscape_sklearn.dataset import SklearnDataset
from landscape_sklearn.preparation import Preparation
from landscape_sklearn.sources import BUNDLED, GENERATED, Table, generate, load_bundled


def open_dataset(target: str, **options: Any) -> SklearnDataset:
    """Return a split of one of scikit-learn's data sets.

    Args:
        target: ``digits``, ``breast_cancer``, ``wine``, ``iris``, ``diabetes``, or the name of a
            generator, ``make_moons`` say; ``-`` and ``_`` are the same.
        **options: the fields of `Preparation`; for a generator also those of the scikit-learn
            function of that name.

    Raises:
        AdapterError: If the target or an option is unknown, or a value cannot be meant.

    Example:
        >>> data = open_dataset("digits", split="test")
        >>> len(data), data.in_shape, data.num_classes
        (360, (1, 8, 8), 10)
    """
    name = target.replace("-", "_")
    if name not in BUNDLED and name not in GENERATED:
        raise AdapterError(
            f"scikit-learn has no data set {target!r}, as far as this plugin knows",
            seen=target,
            hint=", ".join([*BUNDLED, *GENERATED]),
        )
    preparation, others = Preparation.split_off(options)
    return SklearnDataset(_open(name, others, preparation.seed), preparation)


def _open(name: str, options: dict[str, Any], seed: int) -> Table:
    if name in GENERATED:
        return generate(name, options, seed)
    if options:
        unknown = next(iter(options))
        raise AdapterError(
            f"the data set {name!r} has no option {unknown!r}",
            seen=f"{unknown}={options[unknown]}",
            hint=", ".join(Preparation.names()),
        )
    return load_bundled(name)
