"""The adapter ``sample``: ``--model sample:vgg?width=8&norm=batch``, ``--data sample:gaussian``."""

from __future__ import annotations

import dataclasses
import typing
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from landscape_cli.errors import AdapterError
from sample_models.architectures import (
    CNN,
    GPT,
    MLP,
    VGG,
    DeepLinear,
    LeastSquares,
    ResNet,
    ResNet18,
    Style,
)
from sample_models.data.cifar import open_cifar10, open_cifar100
from sample_models.data.gaussian import make_gaussian
from sample_models.data.images import make_images
from sample_models.data.least_squares import make_least_squares
from sample_models.data.mnist import open_fashion_mnist, open_mnist
from sample_models.data.tokens import make_tokens
from sample_models.normalisation import accepted_norm_options
from sample_models.options import accepted_options, bind, require_options, require_seed

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch.utils.data import Dataset

_NORM_PREFIX = "norm_"
_LINEAR = ("activation", "norm_position")


@dataclass(frozen=True)
class _Entry:
    """An architecture, and the parts of a style that mean nothing to it."""

    build: Any
    without: tuple[str, ...] = ()

    @property
    def style(self) -> Style:
        """The style that the architecture has unless told."""
        return typing.cast("Style", getattr(self.build, "func", self.build).default_style)


_MODELS: dict[str, _Entry] = {
    "vgg": _Entry(VGG),
    "deep-linear": _Entry(DeepLinear, without=_LINEAR),
    "mlp": _Entry(MLP),
    "cnn": _Entry(CNN),
    "resnet": _Entry(ResNet),
    "resnet20": _Entry(partial(ResNet, depth=20)),
    "resnet110": _Entry(partial(ResNet, depth=110)),
    "resnet18": _Entry(ResNet18),
    "least-squares": _Entry(LeastSquares, without=_LINEAR),
    "gpt": _Entry(GPT),
}
_DATA: dict[str, Callable[..., Dataset[Any]]] = {
    "gaussian": make_gaussian,
    "least-squares": make_least_squares,
    "images": make_images,
    "tokens": make_tokens,
    "cifar10": open_cifar10,
    "cifar100": open_cifar100,
    "mnist": open_mnist,
    "fashion-mnist": open_fashion_mnist,
}


def build_model(target: str, **options: Any) -> nn.Module:
    """Return a sample network, on the CPU, in torch's default type.

    Args:
        target: its name; ``-`` and ``_`` are the same.
        options: the architecture's own; ``norm``, ``norm_position``, ``activation``, ``init``,
            ``init_scale``; those of the norm with ``norm_`` in front (``norm_eps``); and
            ``seed``, which draws the weights without touching the caller's random state.
            Without a seed they come from torch's global generator.

    Raises:
        AdapterError: If the target or an option is unknown, or a value cannot be meant.

    Example:
        >>> model = build_model("mlp", hidden=(8,), in_features=4, classes=2, seed=0)
        >>> sum(p.numel() for p in model.parameters())
        58
    """
    entry = _find(_MODELS, target, "model")
    what = f"the sample model {target!r}"
    norm = options.get("norm", entry.style.norm)
    accepted = {**_accepted_by(entry), **_prefixed_norm_options(norm), "seed": int}
    bound = bind(options, accepted, what)
    seed = bound.pop("seed", None)
    style = _split_style(entry.style, bound)
    with _drawn_with(seed):
        model = entry.build(**bound, style=style)
    return typing.cast("nn.Module", model)


def build_data(target: str, **options: Any) -> Dataset[Any]:
    """Return a sample data set.

    Args:
        target: its name; ``-`` and ``_`` are the same.
        options: its own; generated ones take a ``seed``, those on disk a ``root``.

    Raises:
        AdapterError: If the target or an option is unknown, a value cannot be meant, or a file
            is missing or damaged.

    Example:
        >>> len(build_data("gaussian", samples=100))
        100
    """
    build: Callable[..., Dataset[Any]] = _find(_DATA, target, "data set")
    what = f"the sample data set {target!r}"
    bound = bind(options, accepted_options(build), what)
    require_options(build, bound, what)
    return build(**bound)


def _find(table: Mapping[str, Any], target: str, what: str) -> Any:
    try:
        return table[target.replace("_", "-")]
    except KeyError:
        raise AdapterError(
            f"no sample {what} is named {target!r}", seen=target, hint=", ".join(table)
        ) from None


def _accepted_by(entry: _Entry) -> dict[str, Any]:
    styles = accepted_options(Style, hidden=("norm_options", *entry.without))
    return {**accepted_options(entry.build, hidden=("style",)), **styles}


def _prefixed_norm_options(norm: object) -> dict[str, Any]:
    options = accepted_norm_options(norm) if isinstance(norm, str) else {}
    return {_NORM_PREFIX + name: kind for name, kind in options.items()}


def _split_style(default: Style, bound: dict[str, Any]) -> Style:
    """Move what belongs to the style out of `bound`."""
    names = {field.name for field in dataclasses.fields(Style)}
    chosen = {name: bound.pop(name) for name in names & set(bound)}
    prefixed = [name for name in bound if name.startswith(_NORM_PREFIX)]
    given = {name.removeprefix(_NORM_PREFIX): bound.pop(name) for name in prefixed}
    kept = default.norm_options if chosen.get("norm", default.norm) == default.norm else {}
    return dataclasses.replace(default, **chosen, norm_options={**kept, **given})


@contextmanager
def _drawn_with(seed: int | None) -> Iterator[None]:
    """Let torch's CPU generator start from `seed` inside, and be as it was outside."""
    if seed is None:
        yield
        return
    require_seed(seed)
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
