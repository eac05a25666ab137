"""Where the numbers come from: the sets that scikit-learn carries, and its generators."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn import datasets

from landscape_cli.errors import AdapterError

Task = Literal["classification", "regression"]

BUNDLED: dict[str, Task] = {
    "digits": "classification",
    "breast_cancer": "classification",
    "wine": "classification",
    "iris": "classification",
    "diabetes": "regression",
}
GENERATED: dict[str, Task] = {
    "make_classification": "classification",
    "make_blobs": "classification",
    "make_moons": "classification",
    "make_circles": "classification",
    "make_gaussian_quantiles": "classification",
    "make_regression": "regression",
    "make_friedman1": "regression",
    "make_friedman2": "regression",
    "make_friedman3": "regression",
}
_RETURNS_MORE = ("coef", "return_centers", "return_X_y")


@dataclass(frozen=True)
class Table:
    """A whole data set, as scikit-learn has it.

    Attributes:
        inputs: float64, shape (N, features), or (N, 1, H, W) for images.
        targets: int64 class numbers from 0, shape (N,); or float64, shape (N, outputs).
        task: what the targets are.
        class_names: in the order of their numbers; empty in regression.
        feature_names: of the columns; empty where they have none.
    """

    inputs: np.ndarray
    targets: np.ndarray
    task: Task
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()


def load_bundled(name: str) -> Table:
    """Return one of the sets that scikit-learn carries."""
    options = {"scaled": False} if name == "diabetes" else {}
    bunch = getattr(datasets, f"load_{name}")(**options)
    images = bunch["images"][:, None] if name == "digits" else bunch["data"]
    names = tuple(map(str, bunch["target_names"])) if "target_names" in bunch else ()
    return Table(
        inputs=np.asarray(images, dtype=np.float64),
        targets=_shaped(bunch["target"], BUNDLED[name]),
        task=BUNDLED[name],
        class_names=names,
        feature_names=tuple(map(str, bunch["feature_names"])),
    )


def generate(name: str, options: dict[str, Any], seed: int) -> Table:
    """Return what the generator of that name makes.

    Args:
        name: a key of `GENERATED`.
        options: keyword arguments of the scikit-learn function.
        seed: its ``random_state``.

    Raises:
        AdapterError: If the function does not take an option, or refuses its value.
    """
    function = getattr(datasets, name)
    accepted = [key for key in inspect.signature(function).parameters if key not in _RETURNS_MORE]
    for key, value in options.items():
        if key not in accepted or key == "random_state":
            hint = "seed=…" if key == "random_state" else ", ".join(accepted)
            raise AdapterError(f"{name} has no option {key!r}", seen=f"{key}={value}", hint=hint)
    try:
        inputs, targets = function(**options, random_state=seed)
    except (ValueError, TypeError) as error:
        told = ", ".join(f"{key}={value}" for key, value in options.items())
        raise AdapterError(f"{name} refuses these options", seen=told, hint=str(error)) from None
    task = GENERATED[name]
    shaped = _shaped(targets, task)
    classes = tuple(map(str, np.unique(shaped))) if task == "classification" else ()
    return Table(np.asarray(inputs, dtype=np.float64), shaped, task, classes)


def _shaped(targets: Any, task: Task) -> np.ndarray:
    if task == "classification":
        return np.asarray(targets, dtype=np.int64)
    return np.asarray(targets, dtype=np.float64).reshape(len(targets), -1)
