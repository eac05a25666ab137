"""Directions d to step along: θ(a) = θ₀ − a·d, tensors shaped as the parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from landscape_cli import randomness
from landscape_cli.curvature import top_of, unflattened
from landscape_cli.errors import MeasurementError
from landscape_cli.objective import Objective
from landscape_cli.parameters import Parameters, Tensors, inner_product, norm, scaled


def random(parameters: Parameters, seed: int, draw: int) -> list[Tensor]:
    """Return a Gaussian direction, the same on every device for the same seed and draw."""
    return [random_at(parameters, seed, draw, index) for index in range(len(parameters.tensors))]


def random_at(parameters: Parameters, seed: int, draw: int, index: int) -> Tensor:
    """Return one tensor of the Gaussian direction."""
    tensor = parameters.tensors[index]
    generator = torch.Generator().manual_seed(
        randomness.derived_seed(seed, "direction", draw, index)
    )
    values = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
    return _like(values, tensor)


def random_filter(parameters: Parameters, seed: int, draw: int) -> list[Tensor]:
    """Return a Gaussian direction whose output units have the norms of the weights' own.

    Every output unit i (first axis) gets ‖dᵢ‖₂ = ‖θᵢ‖₂; one-dimensional tensors (biases and
    normalisation parameters) stay at zero.

    Reference:
        Li, Xu, Taylor, Studer and Goldstein (2018), "Visualizing the loss landscape of neural
        nets", §4.
    """
    count = len(parameters.tensors)
    return [random_filter_at(parameters, seed, draw, index) for index in range(count)]


def random_filter_at(parameters: Parameters, seed: int, draw: int, index: int) -> Tensor:
    """Return one tensor of the filter-normalised direction."""
    drawn = random_at(parameters, seed, draw, index)
    return _filter_normalised(drawn, parameters.origin[index])


def _filter_normalised(direction: Tensor, weight: Tensor) -> Tensor:
    """Return the direction with the norms of the weights; what it was may be written over."""
    if weight.dim() < 2:
        return torch.zeros_like(direction)
    axes = tuple(range(1, weight.dim()))
    wanted = torch.linalg.vector_norm(weight.double(), dim=axes, keepdim=True)
    wide = direction.double()
    present = torch.linalg.vector_norm(wide, dim=axes, keepdim=True)
    return _like(wide.mul_(wanted / present), weight)


def eigenvector(objective: Objective, index: int, seed: int) -> list[Tensor]:
    """Return the Hessian's eigenvector of the given rank, counted from the largest eigenvalue.

    Eigenvalues are ordered algebraically: 0 is the direction in which the loss curves up most.
    Of v and −v it is the one along which θ₀ − a·v goes down first, ⟨v, ∇L⟩ ≥ 0.

    Raises:
        MeasurementError: If there are not that many, the model has no second derivative, or the
            eigenvector has not converged.
    """
    count = objective.parameters.count
    if index >= count:
        raise MeasurementError(
            "there is no eigenvector of that rank",
            seen=f"eigenvector:{index}, the model has {count} parameters",
            hint="ranks count from 0",
        )
    pairs = top_of(objective, index + 1, seed)
    if pairs.residuals[index] > pairs.bound:
        raise MeasurementError(
            "the eigenvector has not converged",
            seen=f"residual {pairs.residuals[index]:.1e} at λ = {pairs.values[index]:.3g}",
            hint="a lower rank, or --dtype float64",
        )
    found = unflattened(objective, pairs.vectors[index])
    _, gradient = objective.value_and_gradient()
    return scaled(found, -1.0) if float(inner_product(found, gradient)) < 0 else found


def scaled_to(direction: Tensors, length: float) -> list[Tensor]:
    """Return the direction at norm `length`; a zero direction stays zero."""
    present = norm(direction)
    return scaled(direction, length / present if present else 0.0)


def rescaled(direction: list[Tensor], length: float) -> list[Tensor]:
    """Scale the direction to norm `length` in its own memory, and return it."""
    present = norm(direction)
    for tensor in direction:
        tensor.mul_(length / present if present else 0.0)
    return direction


def towards(parameters: Parameters, target: Sequence[Tensor]) -> list[Tensor]:
    """Return d = θ₀ − target, so that the step a = 1 arrives at the target."""
    with torch.no_grad():
        return [
            _like(here.double() - there.to(here.device).double(), here)
            for here, there in zip(parameters.origin, target, strict=True)
        ]


def from_file(parameters: Parameters, path: Path) -> list[Tensor]:
    """Return the direction in a checkpoint-like file, tensors named as the parameters.

    A parameter that the file leaves out does not move.

    Raises:
        MeasurementError: If a name or shape does not fit, or a value is not finite.
    """
    from landscape_cli import checkpoints

    found = dict(checkpoints.read(path).tensors)
    direction = []
    for name, origin in zip(parameters.names, parameters.origin, strict=True):
        values = found.pop(name, None)
        if values is None:
            direction.append(torch.zeros_like(origin))
            continue
        if values.shape != origin.shape:
            raise MeasurementError(
                "a direction file does not fit the model",
                seen=f"{name}: {tuple(values.shape)}, the parameter has {tuple(origin.shape)}",
                hint="save one tensor per parameter, named and shaped as the parameter",
            )
        direction.append(_like(values, origin))
    if found:
        raise MeasurementError(
            "a direction file names what does not train",
            seen=", ".join(list(found)[:4]),
            hint="save one tensor per trainable parameter, under its name",
        )
    if not math.isfinite(norm(direction)):
        raise MeasurementError(
            "a direction file is not finite", seen=str(path), hint="check how it was made"
        )
    return direction


def _like(values: Tensor, tensor: Tensor) -> Tensor:
    placed = torch.empty_like(tensor, requires_grad=False)
    with torch.no_grad():
        return placed.copy_(values)
