"""A checkpoint made ready to be measured: the objective at θ₀, and what is known there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from landscape_cli import randomness
from landscape_cli.batches import Batch
from landscape_cli.objective import Objective
from landscape_cli.parameters import Parameters, norm


@dataclass
class Site:
    """The point θ₀ from which everything at one checkpoint is measured.

    Attributes:
        label: the checkpoint's label.
        objective: opened; the model is at θ₀.
        learning_rate: the step size that step multiples are multiples of.
        seed: the run's seed.
        base_loss: L(θ₀).
        gradient: g = ∇L(θ₀).
        gradient_norm: ‖g‖₂.
        step_multiples: the grid of the run, for measures that step themselves.
        threads: how many threads the process may compute with, however many one evaluation takes.
        notices: what the user should know about this checkpoint.
    """

    label: str
    objective: Objective
    learning_rate: float
    seed: int
    base_loss: float
    gradient: list[Tensor]
    gradient_norm: float
    step_multiples: tuple[float, ...] = ()
    threads: int = 1
    notices: list[str] = field(default_factory=list)

    @property
    def parameters(self) -> Parameters:
        """θ."""
        return self.objective.parameters

    @classmethod
    def survey(
        cls,
        objective: Objective,
        *,
        label: str,
        learning_rate: float,
        seed: int,
        step_multiples: Sequence[float] = (),
        threads: int = 1,
    ) -> Site:
        """Evaluate L and g at θ₀ and note what stands out. The objective must be open."""
        loss, gradient = objective.value_and_gradient()
        site = cls(
            label=label,
            objective=objective,
            learning_rate=learning_rate,
            seed=seed,
            base_loss=float(loss),
            gradient=gradient,
            gradient_norm=norm(gradient),
            step_multiples=tuple(step_multiples),
            threads=threads,
        )
        site.notices.extend(_remarks(site))
        return site


def _remarks(site: Site) -> list[str]:
    remarks = []
    unreached = site.objective.unreached
    if unreached:
        names = ", ".join(unreached[:3]) + (", …" if len(unreached) > 3 else "")
        remarks.append(f"{len(unreached)} parameters are not reached by the loss: {names}")
    if not math.isfinite(site.base_loss):
        remarks.append(f"the loss at the checkpoint is {site.base_loss}")
    elif not math.isfinite(site.gradient_norm):
        remarks.append("the gradient at the checkpoint is not finite")
    elif site.gradient_norm == 0:
        remarks.append("the gradient at the checkpoint is zero: there is no direction to step in")
    return remarks


def noise_floor(site: Site) -> float:
    """Return ‖Δg‖₂ when nothing but rounding changes, the larger of two trials.

    The samples of every batch are put in another order, where the batch has an order and the
    forward pass draws nothing that is tied to it; and every parameter is nudged to the next
    number its type can hold, up or down at random.
    """
    trials = [_nudged(site)]
    permuted = _permuted(site)
    if permuted is not None:
        trials.append(permuted)
    finite = [trial for trial in trials if math.isfinite(trial)]
    return max(finite, default=math.nan)


def _nudged(site: Site) -> float:
    generator = torch.Generator().manual_seed(randomness.derived_seed(site.seed, "nudge"))
    try:
        for position, origin in enumerate(site.parameters.origin):
            drawn = torch.rand(origin.shape, generator=generator)
            ends = drawn.lt_(0.5).sub_(0.5).mul_(math.inf).to(origin.device, origin.dtype)
            site.parameters.place_at(position, _next_number(origin, ends))
        _, squared = site.objective.value_and_change(site.gradient)
    finally:
        site.parameters.restore()
    return float(squared.sqrt())


def _next_number(values: Tensor, ends: Tensor) -> Tensor:
    """Return the neighbours of `values` towards `ends`; zeros stay, as any scale is a step.

    What is returned lies in the memory of `ends`.
    """
    if values.dtype in (torch.float32, torch.float64):
        torch.nextafter(values, ends, out=ends)
        return torch.where(values == 0, values, ends, out=ends)
    unit = torch.finfo(values.dtype).eps
    return ends.sign_().mul_(values.abs().mul_(unit)).add_(values)


def _permuted(site: Site) -> float | None:
    objective = site.objective
    if objective.draws_random:
        return None
    if not all(batch.has_order for batch in objective.batches):
        return None
    generator = torch.Generator().manual_seed(randomness.derived_seed(site.seed, "order"))

    def permute(_: int, batch: Batch) -> Batch:
        order = torch.randperm(batch.size, generator=generator)
        return batch.permuted(order, objective.model, whole=objective.loss.whole)

    loss, squared = objective.value_and_change(site.gradient, change=permute)
    change = float(squared.sqrt())
    tolerance = torch.finfo(site.parameters.dtype).eps ** 0.5
    if abs(float(loss) - site.base_loss) > tolerance * max(1.0, abs(site.base_loss)):
        return None  # the order of the samples means something to this model
    return change
