"""The loops that one would write: nothing of the package is used here."""

from __future__ import annotations

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.cases import Loss

Batch = tuple[Tensor, Tensor]


def gradient(model: nn.Module, batch: Batch, criterion: Loss) -> list[Tensor]:
    """Return the gradient where the model is."""
    loss = criterion(model(batch[0]), batch[1])
    return [g.detach() for g in torch.autograd.grad(loss, list(model.parameters()))]


def gradient_line(
    model: nn.Module, batch: Batch, criterion: Loss, direction: list[Tensor], steps: np.ndarray
) -> list[tuple[float, ...]]:
    """Return loss, ‖∇L‖, ‖∇L − g‖, cosine and smoothness along −d, from a state dict each time."""
    start = copy.deepcopy(model.state_dict())
    reference = torch.cat([t.flatten() for t in direction])
    rows = []
    for step in steps.tolist():
        model.load_state_dict(start)
        with torch.no_grad():
            for parameter, d in zip(model.parameters(), direction, strict=True):
                parameter.sub_(step * d)
        model.zero_grad()
        loss = criterion(model(batch[0]), batch[1])
        loss.backward()
        here = torch.cat([p.grad.flatten() for p in model.parameters()])
        change = (here - reference).norm()
        cosine = F.cosine_similarity(here, reference, dim=0)
        smoothness = change / (step * reference.norm())
        values = (loss, here.norm(), change, cosine, smoothness)
        rows.append(tuple(value.item() for value in values))
    model.load_state_dict(start)
    model.zero_grad()
    return rows


def loss_line(
    model: nn.Module, batch: Batch, criterion: Loss, direction: list[Tensor], steps: np.ndarray
) -> list[float]:
    """Return the losses along −d, without gradients."""
    start = [parameter.detach().clone() for parameter in model.parameters()]
    losses = []
    with torch.no_grad():
        for step in steps.tolist():
            for parameter, origin, d in zip(model.parameters(), start, direction, strict=True):
                parameter.copy_(origin - step * d)
            losses.append(criterion(model(batch[0]), batch[1]).item())
        for parameter, origin in zip(model.parameters(), start, strict=True):
            parameter.copy_(origin)
    return losses


def without_tracking(model: nn.Module) -> nn.Module:
    """Let norm layers leave their running statistics alone, as a careful person would."""
    for module in model.modules():
        if hasattr(module, "track_running_stats"):
            module.track_running_stats = False
    return model
