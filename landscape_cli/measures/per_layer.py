"""The gradient's change layer by layer, at every point of every line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from landscape_cli.layers import Layer, parameter_layers
from landscape_cli.measures.contract import Arrays, Field
from landscape_cli.parameters import squared_difference
from landscape_cli.points import finite_range
from landscape_cli.site import Site

POINTS = ("checkpoint", "direction", "step", "layer")
LINES = ("checkpoint", "direction", "layer")


class PerLayer:
    """How much of the gradient's change, and of the distance moved, each layer has.

    For layer i with parameters W_i: ‖∇_{W_i} L(θ(a)) − ∇_{W_i} L(θ₀)‖₂, ‖W_i(a) − W_i‖₂, and the
    largest ratio of the two over the steps. The squares of the first two sum over the layers to
    the squares of the run's ``gradient_change`` and ``distance``; sums are in float64.

    Layers are those of `covariate_shift`, in the order of their first use.
    """

    name: ClassVar[str] = "per_layer"
    fields: ClassVar[Mapping[str, Field]] = {
        "layer": Field(("layer",), "", "layers in the order of their first use", "str"),
        "gradient_change": Field(POINTS, "loss per distance", "change of the layer's gradient"),
        "distance": Field(POINTS, "distance", "distance that the layer was moved"),
        "beta": Field(LINES, "loss per squared distance", "largest finite ratio over the steps"),
    }

    def refusal(self, site: Site) -> str:  # noqa: ARG002 - every model has layers
        """Refuse nothing."""
        return ""

    def observer(self, site: Site) -> LayerObserver:
        """Return an observer for one line."""
        return LayerObserver(site)

    def summarise(self, rows: Arrays) -> Arrays:
        """Return every field of one line."""
        change, distance = rows["gradient_change"], rows["distance"]
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = np.where(distance > 0, change / distance, np.nan)
        beta = [finite_range(column)[1] for column in ratios.T]
        return {
            "layer": rows["layer"][0],
            "gradient_change": change,
            "distance": distance,
            "beta": np.array(beta),
        }


class LayerObserver:
    """Takes the norms of every layer's part at a point."""

    tap = None

    def __init__(self, site: Site) -> None:
        self._site = site
        self._layers = parameter_layers(site.objective)
        self._names = np.array([layer.name for layer in self._layers], dtype=str)

    def observe(self, gradient: Sequence[Tensor]) -> Arrays:
        """Return the change and the distance of every layer at the point."""
        parameters = self._site.parameters
        change = [self._norm(layer, gradient, self._site.gradient) for layer in self._layers]
        moved = [self._norm(layer, parameters.tensors, parameters.origin) for layer in self._layers]
        columns = torch.stack([torch.stack(change), torch.stack(moved)]).cpu().numpy()
        return {"layer": self._names, "gradient_change": columns[0], "distance": columns[1]}

    @staticmethod
    def _norm(layer: Layer, here: Sequence[Tensor], there: Sequence[Tensor]) -> Tensor:
        pairs = ([here[i] for i in layer.positions], [there[i] for i in layer.positions])
        return squared_difference(*pairs).sqrt()
