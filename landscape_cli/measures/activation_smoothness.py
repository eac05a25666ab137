"""β-smoothness in the space of activations, per example (Flaherty 2019; Santurkar Thm 4.2)."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from landscape_cli.derivatives import twice_differentiable
from landscape_cli.layers import OutputTap, Uses, affine_layers
from landscape_cli.measures.contract import Arrays, Field
from landscape_cli.objective import Objective
from landscape_cli.site import Site

PER_LINE = ("checkpoint", "direction", "layer")
PER_LAYER = ("checkpoint", "layer")


class ActivationSmoothness:
    """How fast the gradient at a layer's outputs changes as the outputs move along a line.

    β = max ‖∇_y ℓ⁽ᵇ⁾(θ₀) − ∇_y ℓ⁽ᵇ⁾(θ(a))‖₂ ÷ ‖y⁽ᵇ⁾(θ₀) − y⁽ᵇ⁾(θ(a))‖₂ over steps a and examples b,
    for the outputs y of a dense or convolutional layer, where ∇_y ℓ⁽ᵇ⁾ is row b of the gradient
    of the *sum* of the losses. Examples whose output did not move are left out, ratios that are
    not finite are counted. Once a checkpoint, the quadratic form (∇_y L)ᵀ ∂²L/∂y∂y (∇_y L) of
    the mean loss L, by a Hessian-vector product; NaN where an operation behind the layer cannot
    be differentiated twice.

    A layer that is used several times in a forward pass has the outputs of all uses, each with
    what follows it. Evaluated in the run's type; differences, norms and sums in float64.

    Reference:
        Flaherty (2019), "Batch Normalization (Part 2)"; Santurkar et al. (2018), Theorem 4.2.
    """

    name: ClassVar[str] = "activation_smoothness"
    fields: ClassVar[Mapping[str, Field]] = {
        "layer": Field(("layer",), "", "dense and convolutional layers that are used", "str"),
        "beta": Field(PER_LINE, "loss per squared activation", "largest finite ratio"),
        "not_finite": Field(PER_LINE, "", "ratios that are not finite", "int64"),
        "quadratic_form": Field(
            PER_LAYER, "loss³ per activation⁴", "Hessian's quadratic form along the gradient"
        ),
    }

    def __init__(self) -> None:
        self._kept: tuple[weakref.ref[Site], Base] | None = None

    def refusal(self, site: Site) -> str:
        """Refuse a model without dense and convolutional layers."""
        if not affine_layers(site.objective.model):
            return "the model has no dense or convolutional layer"
        return ""

    def observer(self, site: Site) -> ActivationObserver:
        """Return an observer for one line; what is known at θ₀ is found once a site."""
        if self._kept is None or self._kept[0]() is not site:
            self._kept = (weakref.ref(site), Base.at(site))
        return ActivationObserver(self._kept[1])

    def summarise(self, rows: Arrays) -> Arrays:
        """Return the largest ratio over the steps, and how many were not finite."""
        finite = np.where(np.isnan(rows["beta"]), -np.inf, rows["beta"]).max(axis=0)
        return {
            "layer": rows["layer"][0],
            "beta": np.where(np.isneginf(finite), np.nan, finite),
            "not_finite": rows["not_finite"].sum(axis=0),
            "quadratic_form": rows["quadratic_form"][0],
        }


@dataclass
class Base:
    """What is known of the layers at θ₀.

    Attributes:
        names: the layers that the forward pass uses.
        modules: the same as modules.
        sizes: examples of each batch.
        outputs: per batch and layer, one row per example.
        slopes: the gradients there, of the batch's summed loss.
        quadratic_form: per layer.
    """

    names: list[str]
    modules: list[nn.Module]
    sizes: list[int]
    outputs: list[list[Tensor | None]] = field(default_factory=list)
    slopes: list[list[Tensor | None]] = field(default_factory=list)
    quadratic_form: np.ndarray = field(default_factory=lambda: np.empty(0))

    @classmethod
    def at(cls, site: Site) -> Base:
        """Evaluate at θ₀, where the model is."""
        objective = site.objective
        layers = _used(objective)
        base = cls(list(layers), list(layers.values()), [b.size for b in objective.batches])

        def receive(batch: int, outputs: Uses, slopes: list[list[Tensor | None]]) -> None:
            size = base.sizes[batch]
            base.outputs.append([_rows(uses, uses, size) for uses in outputs])
            pairs = zip(slopes, outputs, strict=True)
            base.slopes.append([_rows(found, uses, size) for found, uses in pairs])

        objective.value_and_gradient(OutputTap(base.modules, receive))
        base.quadratic_form = _quadratic_forms(site, base.modules)
        return base


def _used(objective: Objective) -> dict[str, nn.Module]:
    """Return the layers that the first batch's forward pass calls."""
    layers = affine_layers(objective.model)
    tap = OutputTap(list(layers.values()), lambda *_: None)
    with torch.no_grad(), objective.still(0), tap.listen(0):
        objective.total_at(0, objective.parameters.tensors)
    pairs = zip(layers.items(), tap.outputs, strict=True)
    return {name: module for (name, module), uses in pairs if uses}


def _rows(values: Sequence[Tensor | None], like: Sequence[Tensor], size: int) -> Tensor | None:
    """Return all uses side by side, one row per example; None if examples cannot be told apart."""
    if any(tensor.dim() == 0 or tensor.shape[0] % size for tensor in like):
        return None
    filled = [
        torch.zeros_like(tensor) if value is None else value.detach()
        for value, tensor in zip(values, like, strict=True)
    ]
    return torch.cat([tensor.reshape(size, -1) for tensor in filled], dim=1)


class ActivationObserver:
    """Compares outputs and their gradients at every point of a line with those at θ₀."""

    def __init__(self, base: Base) -> None:
        self.tap = OutputTap(base.modules, self._receive)
        self._base = base
        self._found: list[Tensor] = []

    def _receive(self, batch: int, outputs: Uses, slopes: list[list[Tensor | None]]) -> None:
        base, size = self._base, self._base.sizes[batch]
        found = []
        for index, uses in enumerate(outputs):
            before, slope_before = base.outputs[batch][index], base.slopes[batch][index]
            after, slope_after = _rows(uses, uses, size), _rows(slopes[index], uses, size)
            if before is None or slope_before is None or after is None or slope_after is None:
                found.append(torch.tensor([-torch.inf, 0.0], dtype=torch.float64))
                continue
            change = _row_distance(slope_before, slope_after)
            found.append(_steepest(change, _row_distance(before, after)).cpu())
        self._found.append(torch.stack(found))

    def observe(self, gradient: Sequence[Tensor]) -> Arrays:  # noqa: ARG002
        """Return the largest ratio of each layer at the point that was just evaluated."""
        found = torch.stack(self._found).numpy()
        self._found = []
        largest = found[..., 0].max(axis=0)
        return {
            "layer": np.array(self._base.names, dtype=str),
            "beta": np.where(np.isneginf(largest), np.nan, largest),
            "not_finite": found[..., 1].sum(axis=0).astype(np.int64),
            "quadratic_form": self._base.quadratic_form,
        }


def _row_distance(first: Tensor, second: Tensor) -> Tensor:
    distance: Tensor = torch.linalg.vector_norm(first.double() - second.double(), dim=1)
    return distance


def _steepest(change: Tensor, distance: Tensor) -> Tensor:
    """Return the largest finite ratio, −∞ without any, and how many are not finite."""
    moved = distance != 0
    ratio = change / torch.where(moved, distance, 1.0)
    finite = torch.isfinite(ratio)
    largest = torch.where(moved & finite, ratio, -torch.inf).max()
    return torch.stack([largest, (moved & ~finite).sum().double()])


def _quadratic_forms(site: Site, modules: list[nn.Module]) -> np.ndarray:
    """Return (∇_y L)ᵀ ∂²L/∂y∂y (∇_y L) of every layer; the batches do not interact."""
    objective = site.objective
    total = np.zeros(len(modules))
    try:
        for index in range(len(objective.batches)):
            total += _batch_quadratic_forms(objective, index, modules)
    except (RuntimeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        site.notices.append(f"activation_smoothness: no quadratic form: {reason}")
        return np.full(len(modules), np.nan)
    return total


def _batch_quadratic_forms(
    objective: Objective, index: int, modules: list[nn.Module]
) -> np.ndarray:
    tap = OutputTap(modules, lambda *_: None)
    with twice_differentiable():
        with objective.still(index), torch.enable_grad(), tap.listen(index):
            value = objective.total_at(index, objective.parameters.tensors) / objective.divisor
        flat = tap.tensors()
        slopes = torch.autograd.grad(value, flat, create_graph=True, allow_unused=True)
        remaining = iter(slopes)
        grouped = [(uses, [next(remaining) for _ in uses]) for uses in tap.outputs]
        return np.array([_quadratic_form(uses, found) for uses, found in grouped])


def _quadratic_form(outputs: Sequence[Tensor], slopes: Sequence[Tensor | None]) -> float:
    """Differentiate ⟨g, v⟩ at v = g once more, and multiply by v."""
    live = [g for g in slopes if g is not None and g.requires_grad]
    if not live:
        return 0.0
    steepness = torch.stack([(g * g.detach()).sum(dtype=torch.float64) for g in live]).sum()
    curved = torch.autograd.grad(steepness, outputs, retain_graph=True, allow_unused=True)
    pairs = [(h, g) for h, g in zip(curved, slopes, strict=True) if h is not None and g is not None]
    return float(sum((h.double() * g.detach().double()).sum() for h, g in pairs))
