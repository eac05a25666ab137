"""The Hessian of an objective at the model's present θ, as a matrix known by its products."""

from __future__ import annotations

import torch
from torch import Tensor

from landscape_cli import randomness
from landscape_cli.errors import MeasurementError
from landscape_cli.lanczos import Eigenpairs, SymmetricMatrix, top_eigenpairs
from landscape_cli.objective import Objective
from landscape_cli.parameters import Tensors


def hessian(objective: Objective) -> SymmetricMatrix:
    """Return H over all parameters, flattened one after the other.

    Products are computed in the parameters' type; what surrounds them is float64.
    """

    def product(vector: Tensor) -> Tensor:
        curved = objective.hessian_vector_product(unflattened(objective, vector))
        flat = flattened(curved)
        if not bool(torch.isfinite(flat).all()):
            raise MeasurementError(
                "the Hessian is not finite",
                seen="a product with it holds inf or NaN",
                hint="leave out what needs curvature",
            )
        return flat

    parameters = objective.parameters
    return SymmetricMatrix(product, parameters.count, parameters.device, parameters.dtype)


def flattened(tensors: Tensors) -> Tensor:
    """Return all tensors as one vector in float64."""
    device = tensors[0].device
    return torch.cat([tensor.detach().to(device).double().reshape(-1) for tensor in tensors])


def unflattened(objective: Objective, vector: Tensor) -> list[Tensor]:
    """Return a vector as tensors shaped, typed and placed as the parameters."""
    parts = torch.split(vector, [tensor.numel() for tensor in objective.parameters.tensors])
    pairs = zip(parts, objective.parameters.tensors, strict=True)
    return [part.reshape(t.shape).to(device=t.device, dtype=t.dtype) for part, t in pairs]


def top_of(objective: Objective, count: int, seed: int, max_products: int = 1000) -> Eigenpairs:
    """Return the largest eigenpairs, to residuals of √ε of the type computed in.

    The error of an eigenvalue is of the order of its residual's square.
    """
    return top_eigenpairs(
        hessian(objective),
        count,
        seed=randomness.derived_seed(seed, "lanczos"),
        tolerance=torch.finfo(objective.parameters.dtype).eps ** 0.5,
        max_products=max_products,
    )


def second_derivative_problem(objective: Objective) -> str:
    """Return in one line why there is no Hessian; empty if there is one."""
    zeros = [torch.zeros_like(tensor) for tensor in objective.parameters.tensors]
    try:
        objective.hessian_vector_product(zeros)
    except MeasurementError as error:
        return f"{error.what} ({error.seen})"
    return ""
