"""From a picture to a tensor: the transforms of published weights, or plain ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from landscape_cli.errors import AdapterError
from landscape_torchvision.library import torchvision

Transform = Callable[[Any], Any]


@dataclass(frozen=True)
class Plain:
    """Numbers between 0 and 1, resized, cropped and normalised if asked.

    Attributes:
        resize: length of the shorter side, of which the central square is kept; None for as is.
        mean: subtracted, one number or one per channel.
        std: divided by, one number or one per channel.
    """

    resize: int | None = None
    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)

    def __call__(self, picture: Any) -> Tensor:
        """Return a float32 tensor of shape (channels, height, width)."""
        functional = torchvision.transforms.functional
        if self.resize is not None:
            picture = functional.resize(picture, self.resize, antialias=True)
            picture = functional.center_crop(picture, self.resize)
        pixels = picture if isinstance(picture, Tensor) else functional.pil_to_tensor(picture)
        scaled: Tensor = functional.convert_image_dtype(pixels, torch.float32)
        return (scaled - _column(self.mean)) / _column(self.std)


@dataclass(frozen=True)
class Published:
    """The transforms that a model's published weights were evaluated with, in colour."""

    transform: Transform

    def __call__(self, picture: Any) -> Any:
        """Return what the transforms make of the picture."""
        if getattr(picture, "mode", "RGB") != "RGB":
            picture = picture.convert("RGB")
        return self.transform(picture)


def choose(
    weights: str | None, *, resize: Any = None, mean: Any = None, std: Any = None
) -> Transform:
    """Return the transform that the options ask for.

    Args:
        weights: ``ResNet18_Weights.IMAGENET1K_V1``, or a model's name for its default weights.
        resize: as in `Plain`; excluded by `weights`.
        mean: the same.
        std: the same.

    Raises:
        AdapterError: If there are no such weights, or a value cannot be meant.
    """
    plain = {"resize": resize, "mean": mean, "std": std}
    given = {name: value for name, value in plain.items() if value is not None}
    if weights is None:
        return _plain(given)
    if given:
        raise AdapterError(
            "weights bring their own transforms",
            seen=", ".join(["weights", *given]),
            hint=f"leave {' and '.join(given)} out, or leave weights out",
        )
    return Published(_find(weights).transforms())


def _find(weights: str) -> Any:
    models = torchvision.models
    try:
        return models.get_weight(weights) if "." in weights else _default(weights)
    except (ValueError, KeyError, AttributeError) as error:
        raise AdapterError(
            f"torchvision {torchvision.__version__} has no weights {weights!r}",
            seen=str(error),
            hint="weights=ResNet18_Weights.IMAGENET1K_V1, or a model's name for its default",
        ) from None


def _default(model: str) -> Any:
    return torchvision.models.get_model_weights(model).DEFAULT


def _plain(given: dict[str, Any]) -> Plain:
    resize = given.pop("resize", None)
    if resize is not None and not (type(resize) is int and resize > 0):
        raise _refusal("resize", resize, "give the side in pixels")
    for name, value in given.items():
        numbers = value if isinstance(value, tuple | list) else (value,)
        if not numbers or not all(type(number) in (int, float) for number in numbers):
            raise _refusal(name, value, "give a number, or one per channel: (0.5,0.5,0.5)")
        if name == "std" and not all(number > 0 for number in numbers):
            raise _refusal(name, value, "give positive numbers")
        given[name] = tuple(map(float, numbers))
    return Plain(resize=resize, **given)


def _refusal(name: str, value: object, hint: str) -> AdapterError:
    return AdapterError(
        f"the option {name!r} cannot be {value!r}", seen=f"{name}={value}", hint=hint
    )


def _column(numbers: Sequence[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32).reshape(-1, 1, 1)
