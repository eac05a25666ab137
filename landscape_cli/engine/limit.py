"""The limit of the smoothness as the step goes to zero."""

from __future__ import annotations

import torch

from landscape_cli.engine.memory import available_bytes
from landscape_cli.errors import MeasurementError
from landscape_cli.parameters import Tensors, norm
from landscape_cli.site import Site

COPIES = 3
"""Copies of θ that must fit into the free memory before a second derivative is taken.

It holds one, another of a direction that is drawn again instead of being kept, and the third is
for what the forward pass and its first derivative keep.
"""


def limit(site: Site, direction: Tensors, notices: list[str]) -> float:
    """Return ‖H d‖ ÷ ‖d‖, by finite differences where the model has no second derivative.

    So too where the memory is short: differences hold one copy of θ, and nothing of a graph.
    """
    theta = sum(tensor.numel() * tensor.element_size() for tensor in site.parameters.tensors)
    if available_bytes(site.parameters.device) < COPIES * theta:
        notices.append("the limit is a central difference: the memory is short")
        return difference_curvature(site, direction)
    try:
        return site.objective.directional_curvature(direction)
    except MeasurementError as error:
        notices.append(f"the limit is a central difference: {error.what} ({error.seen})")
        return difference_curvature(site, direction)


def difference_curvature(site: Site, direction: Tensors) -> float:
    """Return ‖∇L(θ₀ + εd) − ∇L(θ₀ − εd)‖ ÷ ‖2εd‖ with ε = eps^⅓ ‖θ₀‖ ÷ ‖d‖."""
    length = norm(direction)
    if not length:
        return float("nan")
    reach: float = torch.finfo(site.parameters.dtype).eps ** (1 / 3) * max(
        norm(site.parameters.origin), 1.0
    )
    try:
        site.parameters.move(direction, reach / length)
        _, ahead = site.objective.value_and_gradient()
        site.parameters.move(direction, -reach / length)
        _, squared = site.objective.value_and_change(ahead)
    finally:
        site.parameters.restore()
    return float(squared.sqrt()) / (2.0 * reach)
