"""Both sides of the theorems on what BatchNorm does to the landscape, unit by unit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from landscape_cli import randomness
from landscape_cli.captures import Capture, Producer, batch_norms, capture_batch_norms
from landscape_cli.design import design_matrix, group_of
from landscape_cli.errors import SpecError
from landscape_cli.measures.contract import Arrays, Field
from landscape_cli.precision import in_float64
from landscape_cli.site import Site

DIMS = ("checkpoint", "unit")
SQUARED_SLOPE = "loss² per squared activation"
CURVED = "loss³ per activation⁴"


class NormalisationBounds:
    """Both sides of Theorems 4.1 and 4.2 for the units of every BatchNorm layer.

    A unit j turns y ∈ ℝᵐ (its inputs over the first batch and all positions) into ŷ = (y − μ)/σ
    and z = γŷ + β, with σ² the biased batch variance + ε. L is the mean loss of the first batch.

    - ``lipschitz_left``  = ‖∇_y L‖²
    - ``lipschitz_right`` = γ²/σ² · (‖∇_z L‖² − ⟨1, ∇_z L⟩²/m − ⟨∇_z L, ŷ⟩²/m)
    - ``smoothness_left``  = (∇_y L)ᵀ ∂²L/∂y∂y (∇_y L)
    - ``smoothness_right`` = γ²/σ² · (∇_y L)ᵀ ∂²L/∂z∂z (∇_y L) − γ/(mσ²) · ⟨∇_z L, ŷ⟩ · ‖∇_y L‖²

    The left sides are differentiated through the whole network, the right sides are the
    formulas. Both theorems are proven as identities, which hold at ε = 0 and else up to ε/σ².

    The minimax forms follow with X the inputs of the dense or convolutional layer in front and
    λ = ``input_norm`` = ‖X‖₂: ``weight_lipschitz`` = ‖∇_w L‖² ≤ λ² · lipschitz_right (4.4), and
    ``weight_smoothness`` = (∇_w L)ᵀ ∂²L/∂w∂w (∇_w L), which C.1 holds against
    λ⁴ · smoothness_right; NaN where no such layer is directly in front, or X is over 512 MiB.

    Smoothness is taken of at most `units` units a layer, chosen with the seed; NaN elsewhere. A
    layer that is used several times counts with its first use. Everything in float64, whatever
    the run's type.

    Args:
        units: units a layer whose second-order sides are taken.

    Raises:
        SpecError: If `units` is negative.

    Reference:
        Santurkar et al. (2018), §4.2 and Appendix C.
    """

    name: ClassVar[str] = "normalisation_bounds"
    fields: ClassVar[Mapping[str, Field]] = {
        "unit": Field(("unit",), "", "BatchNorm layer and unit, layer:unit", "str"),
        "lipschitz_left": Field(DIMS, SQUARED_SLOPE, "left side of Theorem 4.1"),
        "lipschitz_right": Field(DIMS, SQUARED_SLOPE, "right side of Theorem 4.1"),
        "smoothness_left": Field(DIMS, CURVED, "left side of Theorem 4.2, of chosen units"),
        "smoothness_right": Field(DIMS, CURVED, "right side of Theorem 4.2, of chosen units"),
        "variance": Field(DIMS, "squared activation", "σ², the batch variance + ε"),
        "input_norm": Field(DIMS, "activation", "λ, spectral norm of the layer's inputs"),
        "weight_lipschitz": Field(
            DIMS, "loss² per squared distance", "squared norm of the unit's weight gradient"
        ),
        "weight_smoothness": Field(
            DIMS, "loss³ per distance⁴", "quadratic form of the weight Hessian, of chosen units"
        ),
    }

    def __init__(self, units: int = 16) -> None:
        if not isinstance(units, int) or units < 0:
            raise SpecError(
                "the number of units is not a whole number from 0", seen=units, hint="units=16"
            )
        self.units = units

    def refusal(self, site: Site) -> str:
        """Refuse where nothing is normalised by the batch."""
        if not batch_norms(site.objective.model):
            return "the model has no BatchNorm layer"
        if site.objective.norm_mode != "batch":
            mode = site.objective.norm_mode
            return f"the theorems differentiate batch statistics, norm mode {mode} does not"
        return ""

    def measure(self, site: Site) -> Arrays:
        """Return every field, shape (unit,) each, layers in the order of definition.

        Nothing is returned where the forward pass uses no BatchNorm layer.
        """
        with in_float64(site.objective) as objective:
            captures = capture_batch_norms(objective)
            if not captures:
                site.notices.append(f"{self.name}: the forward pass uses no BatchNorm layer")
                return {}
            rows = []
            for capture in captures:
                chosen = self._chosen(site.seed, capture.label, capture.count)
                rows.append(_Sides(capture).columns(chosen))
        names = [f"{c.label}:{unit}" for c in captures for unit in range(c.count)]
        columns = np.concatenate(rows, axis=1)
        numbers = [name for name in self.fields if name != "unit"]
        return {"unit": np.array(names, dtype=str), **dict(zip(numbers, columns, strict=True))}

    def _chosen(self, seed: int, label: str, count: int) -> list[int]:
        """Return the units whose second-order sides are taken, ascending."""
        generator = torch.Generator().manual_seed(randomness.derived_seed(seed, "units", label))
        return sorted(torch.randperm(count, generator=generator)[: self.units].tolist())


class _Sides:
    """The sides of the theorems for the units of one layer; axes are (unit, m)."""

    def __init__(self, capture: Capture) -> None:
        module = capture.module
        assert capture.inputs is not None
        assert capture.outputs is not None
        self._inputs, self._outputs = capture.inputs, capture.outputs
        wanted = [self._inputs, self._outputs]
        found = torch.autograd.grad(capture.loss, wanted, create_graph=True, allow_unused=True)
        self._slope, self._behind = (
            torch.zeros_like(like) if slope is None else slope
            for slope, like in zip(found, wanted, strict=True)
        )
        entered = _units_first(self._inputs.detach())
        self.size = entered.shape[1]
        variance, mean = torch.var_mean(entered, dim=1, correction=0, keepdim=True)
        self.variance = variance[:, 0] + module.eps
        self.normalised = (entered - mean) / self.variance[:, None].sqrt()
        ones = torch.ones_like(self.variance)
        self.gamma = ones if module.weight is None else module.weight.detach().to(ones.dtype)
        self.slope = _units_first(self._slope.detach())
        self.behind = _units_first(self._behind.detach())
        self._weights = _WeightSpace.of(capture.producer)

    def columns(self, chosen: Sequence[int]) -> np.ndarray:
        """Return the numbers of every unit, shape (field, unit), in the order of the fields."""
        count = len(self.variance)
        squared = self.slope.square().sum(1)
        blank = torch.full((count,), math.nan, dtype=squared.dtype)
        left, right, weight_smoothness = blank.clone(), blank.clone(), blank.clone()
        input_norm, weight_lipschitz = blank.clone(), blank.clone()
        for unit in chosen:
            left[unit], right[unit] = self._smoothness(unit)
        if self._weights is not None:
            for unit in range(count):
                input_norm[unit] = self._weights.norm(unit)
                pulled = self._weights.pull(unit, self.slope[unit])
                weight_lipschitz[unit] = pulled.square().sum()
            for unit in chosen:
                weight_smoothness[unit] = self._weight_smoothness(unit)
        columns = [
            *(squared, self._lipschitz_right(), left, right),
            *(self.variance, input_norm, weight_lipschitz, weight_smoothness),
        ]
        return torch.stack([column.cpu().double() for column in columns]).numpy()

    def _lipschitz_right(self) -> Tensor:
        inner = (self.behind * self.normalised).sum(1)
        removed = (self.behind.sum(1).square() + inner.square()) / self.size
        return self.gamma.square() / self.variance * (self.behind.square().sum(1) - removed)

    def _smoothness(self, unit: int) -> tuple[float, float]:
        """Return both sides of Theorem 4.2."""
        slope = self.slope[unit]
        left = slope @ self._curve(self._slope, self._inputs, unit, slope)
        curved = slope @ self._curve(self._behind, self._outputs, unit, slope)
        gamma, variance = self.gamma[unit], self.variance[unit]
        inner = self.behind[unit] @ self.normalised[unit]
        shrink = gamma / (self.size * variance) * inner * (slope @ slope)
        return float(left), float(gamma.square() / variance * curved - shrink)

    def _weight_smoothness(self, unit: int) -> float:
        """Return (∇_w L)ᵀ Xᵀ ∂²L/∂y∂y X (∇_w L), where ∇_w L = Xᵀ ∇_y L."""
        assert self._weights is not None
        moved = self._weights.push(unit, self._weights.pull(unit, self.slope[unit]))
        return float(moved @ self._curve(self._slope, self._inputs, unit, moved))

    def _curve(self, slope: Tensor, at: Tensor, unit: int, vector: Tensor) -> Tensor:
        """Return the unit's block of the Hessian by `at` times a vector of shape (m,)."""
        if not slope.requires_grad:
            return torch.zeros_like(vector)
        placed = torch.zeros_like(at)
        placed[:, unit] = vector.reshape(placed[:, unit].shape)
        (product,) = torch.autograd.grad(
            slope, at, grad_outputs=placed, retain_graph=True, materialize_grads=True
        )
        own: Tensor = product.detach()[:, unit].reshape(-1)
        return own


def _units_first(values: Tensor) -> Tensor:
    """Return (N, unit, …) as (unit, m)."""
    return values.movedim(1, 0).flatten(1)


class _WeightSpace:
    """The linear map from a unit's weights to its outputs, y = X·w."""

    def __init__(self, producer: Producer) -> None:
        self._module = producer.module
        self._inputs = producer.inputs
        self._kept: tuple[int, Tensor, float] | None = None

    @classmethod
    def of(cls, producer: Producer | None) -> _WeightSpace | None:
        """Return the map, None where no layer is known to be in front."""
        return None if producer is None else cls(producer)

    def _group(self, unit: int) -> tuple[Tensor, float]:
        """Return X and ‖X‖₂ of the unit's group; one group is kept at a time."""
        group = group_of(self._module, unit)
        if self._kept is None or self._kept[0] != group:
            matrix = design_matrix(self._module, self._inputs, group).flatten(0, 1)
            largest = torch.linalg.eigvalsh(matrix.T @ matrix)[-1].clamp(min=0).sqrt()
            self._kept = (group, matrix, float(largest))
        return self._kept[1:]

    def norm(self, unit: int) -> float:
        """Return λ = ‖X‖₂."""
        return self._group(unit)[1]

    def pull(self, unit: int, slope: Tensor) -> Tensor:
        """Return Xᵀ·slope."""
        return self._group(unit)[0].T @ slope

    def push(self, unit: int, weights: Tensor) -> Tensor:
        """Return X·weights."""
        return self._group(unit)[0] @ weights
