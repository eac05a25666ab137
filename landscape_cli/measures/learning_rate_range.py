"""Which learning rates gradient descent can take from here, and where it goes with each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from landscape_cli.errors import SpecError
from landscape_cli.measures.contract import Arrays, Field
from landscape_cli.site import Site

MULTIPLE = "learning rates"


class LearningRateRange:
    """Gradient descent from θ₀ at every step multiple of the run, and the rates it survives.

    θ_{t+1} = θ_t − η·m·∇L(θ_t) for t < T at every multiple m, on the run's fixed batches. A path
    diverges if a loss on it is not finite, or if the last one lies above the first by more than
    rounding (√ε of it, ε of the run's type). The range is the longest run of neighbouring
    positive multiples that do not diverge, the first of equally long ones. After a loss that is
    not finite a path stops, and the losses that would have followed are NaN.

    On a quadratic with largest curvature λ the range ends at 2/λ, given iterations enough for
    what grows to outgrow what shrinks. One gradient per multiple and iteration, in the run's
    type; losses are summed in float64.

    Args:
        iterations: T.

    Raises:
        SpecError: If `iterations` is not a whole number from 1.

    Reference:
        Cai, Li and Shen (2019), "A quantitative analysis of the effect of batch normalization
        on gradient descent"; Santurkar et al. (2018), Fig. 10.
    """

    name: ClassVar[str] = "learning_rate_range"
    fields: ClassVar[Mapping[str, Field]] = {
        "iteration": Field(("iteration",), "steps", "iteration, 0 at the checkpoint", "int64"),
        "loss": Field(("checkpoint", "step", "iteration"), "loss", "loss along the path"),
        "diverged": Field(("checkpoint", "step"), "", "1 where the path diverges", "uint8"),
        "lowest": Field(("checkpoint",), MULTIPLE, "lowest multiple of the widest range"),
        "highest": Field(("checkpoint",), MULTIPLE, "highest multiple of the widest range"),
    }

    def __init__(self, iterations: int = 20) -> None:
        if not isinstance(iterations, int) or iterations < 1:
            raise SpecError(
                "iterations is not a whole number from 1", seen=iterations, hint="iterations=20"
            )
        self.iterations = iterations

    def refusal(self, site: Site) -> str:
        """Refuse where there is nothing to step with."""
        if not math.isfinite(site.learning_rate):
            return "gradient descent needs the learning rate; give --lr"
        if not site.step_multiples:
            return "the run has no step multiples"
        return ""

    def measure(self, site: Site) -> Arrays:
        """Return the paths, which of them diverge, and the widest range that does not."""
        paths = np.array([self._descend(site, multiple) for multiple in site.step_multiples])
        tolerance = torch.finfo(site.parameters.dtype).eps ** 0.5
        stays = np.array([_stays(path, tolerance) for path in paths])
        lowest, highest = widest_range(np.array(site.step_multiples), stays)
        return {
            "iteration": np.arange(self.iterations + 1),
            "loss": paths,
            "diverged": (~stays).astype(np.uint8),
            "lowest": np.array(lowest),
            "highest": np.array(highest),
        }

    def _descend(self, site: Site, multiple: float) -> np.ndarray:
        """Return the losses of one path, shape (iterations + 1,)."""
        losses = np.full(self.iterations + 1, np.nan)
        losses[0] = site.base_loss
        gradient = site.gradient
        data = [tensor.data for tensor in site.parameters.tensors]
        try:
            for iteration in range(1, self.iterations + 1):
                if not math.isfinite(losses[iteration - 1]):
                    break
                torch._foreach_add_(data, gradient, alpha=-site.learning_rate * multiple)
                if iteration == self.iterations:
                    losses[iteration] = float(site.objective.value())
                else:
                    value, gradient = site.objective.value_and_gradient()
                    losses[iteration] = float(value)
        finally:
            site.parameters.restore()
        return losses


def _stays(losses: np.ndarray, tolerance: float) -> bool:
    """Whether a path does not diverge."""
    first, last = losses[0], losses[-1]
    return bool(np.isfinite(losses).all() and last <= first + tolerance * abs(first))


def widest_range(multiples: np.ndarray, stays: np.ndarray) -> tuple[float, float]:
    """Return the ends of the longest run of positive multiples that stay; NaN without any.

    Args:
        multiples: ascending, shape (K,).
        stays: whether the path of each stays, shape (K,).

    Example:
        >>> widest_range(np.array([0.5, 1.0, 2.0, 4.0]), np.array([True, True, False, True]))
        (0.5, 1.0)
    """
    best: list[float] = []
    run: list[float] = []
    for multiple, stay in zip(multiples.tolist(), stays.tolist(), strict=True):
        run = [*run, multiple] if stay and multiple > 0 else []
        best = run if len(run) > len(best) else best
    return (best[0], best[-1]) if best else (math.nan, math.nan)
