"""How the weights of a layer are drawn before training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

Scheme = Literal[
    "glorot", "glorot-uniform", "glorot-normal", "he", "he-uniform", "he-normal", "normal", "torch"
]

_DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "glorot": nn.init.xavier_uniform_,
    "glorot-uniform": nn.init.xavier_uniform_,
    "glorot-normal": nn.init.xavier_normal_,
    "he": lambda weight: nn.init.kaiming_normal_(weight, nonlinearity="relu"),
    "he-normal": lambda weight: nn.init.kaiming_normal_(weight, nonlinearity="relu"),
    "he-uniform": lambda weight: nn.init.kaiming_uniform_(weight, nonlinearity="relu"),
    "normal": lambda weight: nn.init.normal_(weight, std=0.02),
}


def initialise(layer: nn.Module, scheme: Scheme, *, scale: float = 1.0) -> None:
    """Draw the layer's weights from torch's global generator and set its bias to zero.

    ``glorot`` is the uniform form, U(−a, a) with a = √(6/(fan_in + fan_out)), of the same
    variance as ``glorot-normal``; ``he`` is N(0, 2/fan_in); ``normal`` N(0, 0.02²), as GPT-2
    has it; ``torch`` leaves layer and bias as torch drew them.

    Args:
        layer: a dense, convolutional or embedding layer.
        scheme: one of the above.
        scale: factor on the weights after they are drawn.

    Reference:
        Glorot and Bengio (2010), eq. 16; He et al. (2015), eq. 10.
    """
    weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
    if not isinstance(weight, Tensor):
        raise TypeError(f"{type(layer).__name__} has no weight to draw")
    if scheme != "torch":
        _DRAWS[scheme](weight)
        if isinstance(bias, Tensor):
            nn.init.zeros_(bias)
    if scale != 1.0:
        weight.data.mul_(scale)
