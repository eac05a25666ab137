"""What every architecture lets its user choose: normalisation, activation, initialisation."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from torch import nn

from sample_models.architectures.activations import Activation, make_activation
from sample_models.architectures.initialisation import Scheme, initialise
from sample_models.normalisation import make, normalise_weight

Layer = TypeVar("Layer", bound=nn.Module)


@dataclass(frozen=True)
class Style:
    """How the layers of a network are normalised, activated and initialised.

    Attributes:
        norm: name of the normalisation (`sample_models.normalisation.NAMES`).
        norm_position: ``before`` the activation (Santurkar et al. 2018; He et al. 2016), or
            ``after`` it, where the norm normalises the next layer's input (Lange et al. 2022).
        norm_options: options of the normalisation.
        activation: name of the activation.
        init: how weights are drawn; biases start at zero.
        init_scale: factor on the weights that are drawn.
    """

    norm: str = "none"
    norm_position: Literal["before", "after"] = "before"
    norm_options: Mapping[str, Any] = field(default_factory=dict)
    activation: Activation = "relu"
    init: Scheme = "glorot"
    init_scale: float = 1.0

    def initialised(self, layer: Layer) -> Layer:
        """Return the layer with its weights drawn; for outputs, which no norm touches."""
        initialise(layer, self.init, scale=self.init_scale)
        return layer

    def hidden(self, layer: Layer) -> Layer:
        """Return the layer with its weights drawn, and normalised if that is the norm."""
        self.initialised(layer)
        return normalise_weight(layer) if self.norm == "weight" else layer

    def norm_layer(self, features: int, dims: int) -> nn.Module:
        """Return the normalisation of `features` features with `dims` axes behind them."""
        return make(self.norm, features, dims, **self.norm_options)

    def activate(self, features: int, dims: int, *, pool: nn.Module | None = None) -> nn.Sequential:
        """Return norm and activation in their order, with the pooling behind the activation.

        With the norm after the activation it stands behind the pooling too, so that what the
        next layer sees is normalised.
        """
        norm = ("norm", self.norm_layer(features, dims))
        active = ("activation", make_activation(self.activation))
        pooled = [("pool", pool)] if pool is not None else []
        before = self.norm_position == "before"
        parts = [norm, active, *pooled] if before else [active, *pooled, norm]
        return nn.Sequential(OrderedDict(_without_identities(parts)))

    def block(
        self, layer: nn.Linear | nn.Conv2d, *, pool: nn.Module | None = None
    ) -> nn.Sequential:
        """Return ``layer``, ``norm``, ``activation`` (and ``pool``) in the style's order.

        The layer's own names do not depend on the norm, so that networks that differ in it
        share the names of their other weights, and a seed draws them the same weights.
        """
        if isinstance(layer, nn.Linear):
            rest = self.activate(layer.out_features, 0, pool=pool)
        else:
            rest = self.activate(layer.out_channels, 2, pool=pool)
        return nn.Sequential(OrderedDict(layer=self.hidden(layer), **dict(rest.named_children())))


def _without_identities(parts: list[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    return [(name, part) for name, part in parts if not isinstance(part, nn.Identity)]
