"""Axes of a plane, and where the checkpoints of a trajectory lie on it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from landscape_cli.engine.memory import available_bytes
from landscape_cli.errors import MeasurementError
from landscape_cli.parameters import Tensors, inner_product


def principal_components(displacements: Sequence[Tensors], count: int = 2) -> list[list[Tensor]]:
    """Return the directions along which displacements from one point vary most, as axes.

    With the uncentred Gram matrix Gᵢⱼ = ⟨δᵢ, δⱼ⟩ and its k-th eigenpair (λ, v), the component is
    u = Σᵢ vᵢ δᵢ/√λ. An axis is d = −s·u with s the largest |⟨δᵢ, u⟩|, so that the
    displacements have coordinates between −1 and 1 on θ₀ − a·d.

    Args:
        displacements: δᵢ = θᵢ − θ₀ of the other checkpoints.
        count: number of axes.

    Raises:
        MeasurementError: If the displacements span fewer axes.

    Reference:
        Li, Xu, Taylor, Studer and Goldstein (2018), §7.2.
    """
    gram = torch.stack(
        [torch.stack([inner_product(a, b) for b in displacements]) for a in displacements]
    )
    values, vectors = torch.linalg.eigh(gram)
    smallest = torch.finfo(torch.float32).eps * float(values[-1])
    if len(values) < count or float(values[-count]) <= smallest:
        raise MeasurementError(
            "the trajectory does not span a plane",
            seen=f"{len(displacements) + 1} checkpoints",
            hint="three or more different checkpoints, or --plane A,B with two directions",
        )
    return [_axis(displacements, vectors[:, -1 - k]) for k in range(count)]


def _axis(displacements: Sequence[Tensors], vector: Tensor) -> list[Tensor]:
    # ⟨δᵢ, u⟩ = √λ vᵢ, so s = √λ max|v| and s·u = max|v| Σ vᵢ δᵢ.
    factors = (-vector.abs().max() * vector * vector[vector.abs().argmax()].sign()).tolist()
    axis = [torch.zeros_like(tensor) for tensor in displacements[0]]
    for displacement, factor in zip(displacements, factors, strict=True):
        torch._foreach_add_(axis, list(displacement), alpha=factor)
    return axis


def project(displacements: Sequence[Tensors], axes: Sequence[Tensors]) -> Tensor:
    """Return the coordinates c for which θ₀ − Σⱼ cⱼ·dⱼ is nearest to θ₀ + δ, for every δ.

    The axes need not be orthogonal: c solves ⟨dᵢ, dⱼ⟩ cⱼ = −⟨dᵢ, δ⟩.

    Returns:
        float64, shape (displacements, axes).
    """
    gram = torch.stack([torch.stack([inner_product(a, b) for b in axes]) for a in axes])
    right = [torch.stack([-inner_product(axis, d) for axis in axes]) for d in displacements]
    solution: Tensor = torch.linalg.lstsq(gram, torch.stack(right, dim=1)).solution
    return solution.T


def check_memory(tensors: Tensors, count: int) -> None:
    """Refuse to hold `count` copies of θ where the memory is short.

    Raises:
        MeasurementError: If they would take more than half of what is free.
    """
    needed = count * sum(t.numel() * t.element_size() for t in tensors)
    free = available_bytes(tensors[0].device)
    if needed > free // 2:
        raise MeasurementError(
            "the principal components need every checkpoint in memory",
            seen=f"{needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free",
            hint="fewer checkpoints, or --plane A,B with two directions",
        )
