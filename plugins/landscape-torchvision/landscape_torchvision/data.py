"""The data adapter ``torchvision``: ``--data 'torchvision:CIFAR10?root=data&train=False'``."""

from __future__ import annotations

import difflib
import inspect
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from landscape_cli.errors import AdapterError
from landscape_torchvision import preparation
from landscape_torchvision.library import torchvision


def open_dataset(
    target: str,
    *,
    weights: str | None = None,
    resize: int | None = None,
    mean: Any = None,
    std: Any = None,
    **options: Any,
) -> Dataset[Any]:
    """Open one of torchvision's data sets as it lies on the disk; nothing is downloaded.

    Pictures become float32 tensors between 0 and 1, or what the transforms of `weights` make of
    them. There is no augmentation: a sample is the same every time.

    Args:
        target: the name of a class in ``torchvision.datasets``: ``CIFAR10``, ``ImageFolder``, …
        weights: ``ResNet18_Weights.IMAGENET1K_V1``, or ``resnet18`` for a model's default.
        resize: length of the shorter side, of which the central square is kept.
        mean: subtracted, a number or one per channel.
        std: divided by, a number or one per channel.
        **options: keyword arguments of the class, ``root=data`` and ``train=False`` say.

    Raises:
        AdapterError: If there is no such class, option or folder, or it would be downloaded.
    """
    kind = _find(target)
    known = _options_of(kind)
    _check_options(target, options, known)
    transform = preparation.choose(weights, resize=resize, mean=mean, std=std)
    if "root" in options:
        options["root"] = str(Path(str(options["root"])).expanduser())
    if "download" in known:
        options["download"] = False
    try:
        return kind(**options, transform=transform)  # type: ignore[no-any-return]
    except (RuntimeError, OSError, ValueError, TypeError) as error:
        raise AdapterError(
            f"torchvision's {target} cannot be opened",
            seen=" ".join(str(error).split())[:160],
            hint=_advice(target, options, known),
        ) from error


def _find(target: str) -> Any:
    datasets = torchvision.datasets
    kinds = {
        name: kind
        for name in datasets.__all__
        if inspect.isclass(kind := getattr(datasets, name))
        and issubclass(kind, datasets.VisionDataset)
        and "transform" in _options_of(kind)
    }
    if target in kinds:
        return kinds[target]
    close = difflib.get_close_matches(target, kinds, n=3)
    raise AdapterError(
        f"torchvision {torchvision.__version__} has no data set {target!r} with pictures to "
        "transform",
        seen=target,
        hint=", ".join(close) or "CIFAR10, ImageFolder, …: a class of torchvision.datasets",
    )


def _options_of(kind: Any) -> set[str]:
    """Return the keyword arguments of a class, those that it passes on to its parents included."""
    names: set[str] = set()
    for ancestor in kind.__mro__:
        if "__init__" not in vars(ancestor):
            continue
        parameters = inspect.signature(ancestor.__init__).parameters.values()
        names |= {item.name for item in parameters if item.kind is not item.VAR_KEYWORD}
        if all(item.kind is not item.VAR_KEYWORD for item in parameters):
            break
    return names - {"self", "args"}


NOT_FROM_A_SPEC = {"download", "transform", "target_transform", "transforms", "loader"}
"""What is decided here, or is a function and so cannot be written in a spec."""


def _check_options(target: str, options: dict[str, Any], known: set[str]) -> None:
    if "download" in options:
        raise AdapterError(
            "nothing is downloaded",
            seen=f"download={options['download']}",
            hint=f"once, in Python: torchvision.datasets.{target}('DIR', download=True)",
        )
    allowed = [*sorted(known - NOT_FROM_A_SPEC), "weights", "resize", "mean", "std"]
    for name, value in options.items():
        if name not in allowed:
            raise AdapterError(
                f"torchvision's {target} has no option {name!r}",
                seen=f"{name}={value}",
                hint=", ".join(allowed),
            )


def _advice(target: str, options: dict[str, Any], known: set[str]) -> str:
    if "root" in known and "root" not in options:
        return "root=DIR, where the data lies"
    if "download" in known:
        return f"once, in Python: torchvision.datasets.{target}({options['root']!r}, download=True)"
    return "check root and the other options"
