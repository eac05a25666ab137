"""The activations by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

Activation = Literal[
    "relu", "leaky-relu", "elu", "gelu", "silu", "softplus", "tanh", "sigmoid", "identity"
]

_MAKERS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky-relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "identity": nn.Identity,
}


def make_activation(name: Activation) -> nn.Module:
    """Return the activation called `name`, with torch's defaults and not in place."""
    return _MAKERS[name]()
