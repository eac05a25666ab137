"""Internal covariate shift: how updating the earlier layers changes each layer's gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from landscape_cli.layers import Layer, parameter_layers
from landscape_cli.measures.contract import Arrays, Field
from landscape_cli.parameters import Tensors, gradient_sums, norm
from landscape_cli.site import Site

DIMS = ("checkpoint", "layer")


class CovariateShift:
    """How far each layer's gradient is from what it becomes when the earlier layers have moved.

    For layer i, G_i = ∇_{W_i} L(W_1, …, W_k) and G'_i = ∇_{W_i} L(W'_1, …, W'_{i−1}, W_i, …, W_k),
    where W'_j = W_j − η·G_j is a gradient step at the learning rate η. Reported are ‖G_i − G'_i‖₂
    (0 is no shift) and the cosine of the angle between them (1 is no shift; NaN where either is
    zero). The first layer has none before it. One gradient is evaluated per further layer, in
    the run's type; norms and products are summed in float64.

    Layers are modules with trainable parameters of their own that the forward pass uses, norm
    layers included, in the order of their first use.

    Reference:
        Santurkar et al. (2018), Definition 2.1, Fig. 3 and 6.
    """

    name: ClassVar[str] = "covariate_shift"
    fields: ClassVar[Mapping[str, Field]] = {
        "layer": Field(("layer",), "", "layers in the order of their first use", "str"),
        "l2": Field(DIMS, "loss per distance", "ℓ2 norm of the change of the layer's gradient"),
        "cosine": Field(DIMS, "", "cosine of the angle between the gradients, 1 for no shift"),
        "gradient_norm": Field(DIMS, "loss per distance", "ℓ2 norm of the layer's gradient"),
    }

    def refusal(self, site: Site) -> str:
        """Refuse where there is no learning rate to step with."""
        if not math.isfinite(site.learning_rate):
            return "a gradient step needs the learning rate; give --lr"
        return ""

    def measure(self, site: Site) -> Arrays:
        """Return l2, cosine and gradient norm of every layer, shape (layer,) each."""
        layers = parameter_layers(site.objective)
        rows = []
        gradient = site.gradient
        try:
            for index, layer in enumerate(layers):
                if index:
                    _step(site, layers[index - 1])
                    _, gradient = site.objective.value_and_gradient()
                rows.append(_compare(layer, site.gradient, gradient))
        finally:
            site.parameters.restore()
        columns = np.array(rows, dtype=np.float64).reshape(-1, 3).T
        names = np.array([layer.name for layer in layers], dtype=str)
        return {
            "layer": names,
            **dict(zip(("l2", "cosine", "gradient_norm"), columns, strict=True)),
        }


def _step(site: Site, layer: Layer) -> None:
    """Let one layer take a gradient step at the learning rate."""
    with torch.no_grad():
        for position in layer.positions:
            origin, slope = site.parameters.origin[position], site.gradient[position]
            stepped = torch.add(origin, slope, alpha=-site.learning_rate)
            site.parameters.tensors[position].copy_(stepped)


def _compare(layer: Layer, before: Tensors, after: Tensors) -> tuple[float, float, float]:
    """Return ‖G − G'‖₂, the cosine and ‖G‖₂ of one layer."""
    own, changed = ([tensors[i] for i in layer.positions] for tensors in (before, after))
    squared, change, product = gradient_sums(changed, own).cpu().numpy()
    length = norm(own)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        cosine = np.clip(product / (np.sqrt(squared) * length), -1.0, 1.0)
        return np.sqrt(change), cosine, length
