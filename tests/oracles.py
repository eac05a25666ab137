"""Slow, plain float64 references; nothing of the package is used here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]


def awkward_forward(
    weights: Mapping[str, Tensor], x: Tensor, moments: tuple[Tensor, Tensor]
) -> Tensor:
    """Write out `cases.Awkward` by hand, normalising by the given mean and biased variance."""
    mean, variance = moments
    hidden = x @ weights["enter.weight"].T + weights["enter.bias"]
    hidden = (hidden - mean) / torch.sqrt(variance + 1e-5)
    hidden = torch.tanh(hidden * weights["norm.weight"] + weights["norm.bias"])
    hidden = torch.tanh(hidden @ weights["first.weight"].T + weights["first.bias"])
    hidden = torch.tanh(hidden @ weights["first.weight"].T + weights["again.bias"])
    hidden = torch.tanh(hidden @ weights["still.weight"].T + weights["still.bias"])
    return hidden @ weights["leave.weight"].T + weights["leave.bias"]


def awkward_moments(weights: Mapping[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the batch normalisation of `cases.Awkward` sees in a batch."""
    entered = x @ weights["enter.weight"].T + weights["enter.bias"]
    return entered.mean(0), ((entered - entered.mean(0)) ** 2).mean(0)


def awkward_objective(
    start: Mapping[str, Tensor], batches: Sequence[tuple[Tensor, Tensor]], mode: str
) -> Callable[[Weights], Tensor]:
    """Return L(θ) of `cases.Awkward` for a norm mode: the sample-weighted mean cross-entropy."""
    kept = [awkward_moments(start, x) for x, _ in batches]
    running = (start["norm.running_mean"], start["norm.running_var"])
    samples = sum(len(y) for _, y in batches)

    def objective(weights: Weights) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for index, (x, y) in enumerate(batches):
            moments = {
                "batch": lambda x=x: awkward_moments(weights, x),
                "running": lambda: running,
                "frozen": lambda index=index: kept[index],
            }[mode]()
            scores = awkward_forward(weights, x, moments)
            total = total + F.cross_entropy(scores, y, reduction="sum")
        return total / samples

    return objective


def plain_line(
    objective: Callable[[Weights], Tensor],
    start: Mapping[str, Tensor],
    trainable: Sequence[str],
    step_sizes: Sequence[float],
) -> dict[str, list[float]]:
    """Walk along the gradient the slow way; return every number of the points."""
    base, gradient = _loss_and_gradient(objective, dict(start), trainable)
    rows: dict[str, list[float]] = {
        name: []
        for name in ("loss", "gradient_change", "gradient_cosine", "distance", "smoothness")
    }
    for a in step_sizes:
        moved = dict(start)
        for name in trainable:
            moved[name] = start[name] - a * gradient[name]
        loss, there = _loss_and_gradient(objective, moved, trainable)
        change = math.sqrt(sum(float(((there[n] - gradient[n]) ** 2).sum()) for n in trainable))
        distance = math.sqrt(sum(float(((moved[n] - start[n]) ** 2).sum()) for n in trainable))
        product = sum(float((there[n] * gradient[n]).sum()) for n in trainable)
        lengths = [
            math.sqrt(sum(float((g[n] ** 2).sum()) for n in trainable)) for g in (there, gradient)
        ]
        rows["loss"].append(loss)
        rows["gradient_change"].append(change)
        rows["gradient_cosine"].append(product / (lengths[0] * lengths[1]))
        rows["distance"].append(distance)
        rows["smoothness"].append(change / distance)
    rows["base_loss"] = [base]
    return rows


def _loss_and_gradient(
    objective: Callable[[Weights], Tensor], weights: Weights, trainable: Sequence[str]
) -> tuple[float, Weights]:
    leaves = {n: w.detach().clone().requires_grad_(n in trainable) for n, w in weights.items()}
    loss = objective(leaves)
    loss.backward()
    return loss.item(), {
        n: torch.zeros_like(leaves[n]) if leaves[n].grad is None else leaves[n].grad
        for n in trainable
    }


Raws = Sequence[tuple[Tensor, Tensor]]


def mean_cross_entropy(model: torch.nn.Module, raws: Raws) -> Tensor:
    """Return the mean cross-entropy over all samples, every batch in one forward pass."""
    samples = sum(len(y) for _, y in raws)
    return sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in raws) / samples


def _layer_gradient(model: torch.nn.Module, raws: Raws, layer: str) -> Tensor:
    model.zero_grad()
    mean_cross_entropy(model, raws).backward()
    return torch.cat([p.grad.flatten() for p in model.get_submodule(layer).parameters()])


def covariate_shift(
    model: torch.nn.Module, raws: Raws, layers: Sequence[str], lr: float
) -> dict[str, list[float]]:
    """Follow Definition 2.1 of Santurkar et al. to the letter: for each layer update all before."""
    start = {name: value.clone() for name, value in model.state_dict().items()}
    rows: dict[str, list[float]] = {"l2": [], "cosine": [], "gradient_norm": []}
    for index, layer in enumerate(layers):
        model.load_state_dict(start)
        before = _layer_gradient(model, raws, layer)
        updates = {name: _layer_gradient(model, raws, name) for name in layers[:index]}
        for name in layers[:index]:
            parameters = list(model.get_submodule(name).parameters())
            parts = updates[name].split([p.numel() for p in parameters])
            with torch.no_grad():
                for p, part in zip(parameters, parts, strict=True):
                    p.sub_(lr * part.view_as(p))
        after = _layer_gradient(model, raws, layer)
        rows["l2"].append(float((after - before).norm()))
        rows["cosine"].append(float(before @ after / (before.norm() * after.norm())))
        rows["gradient_norm"].append(float(before.norm()))
    return rows


def _outputs_and_slopes(
    model: torch.nn.Module, batch: tuple[Tensor, Tensor], layers: Sequence[str]
) -> tuple[list[Tensor], list[Tensor]]:
    """Return each layer's output and the gradient of the summed loss there."""
    kept: dict[str, Tensor] = {}
    handles = [
        model.get_submodule(name).register_forward_hook(
            lambda _, __, output, name=name: kept.__setitem__(name, output)
        )
        for name in layers
    ]
    x, y = batch
    total = F.cross_entropy(model(x), y, reduction="sum")
    for handle in handles:
        handle.remove()
    outputs = [kept[name] for name in layers]
    return outputs, list(torch.autograd.grad(total, outputs, create_graph=True))


def activation_smoothness(
    model: torch.nn.Module,
    raws: Raws,
    layers: Sequence[str],
    step_sizes: Sequence[float],
    rows: int | None = None,
) -> dict[str, list[float]]:
    """Walk along −∇L and compare outputs example by example, in Python loops."""
    model.zero_grad()
    mean_cross_entropy(model, raws).backward()
    gradient = [p.grad.clone() for p in model.parameters()]
    start = [p.detach().clone() for p in model.parameters()]
    before = [_outputs_and_slopes(model, batch, layers) for batch in raws]
    samples = sum(len(y) for _, y in raws)
    forms = [0.0] * len(layers)
    for outputs, slopes in before:
        for layer, (y, g) in enumerate(zip(outputs, slopes, strict=True)):
            v = g.detach() / samples
            curved = torch.autograd.grad((g / samples * v).sum(), y, retain_graph=True)[0]
            forms[layer] += float((curved * v).sum())
    beta = [0.0] * len(layers)
    for a in step_sizes:
        with torch.no_grad():
            for p, origin, slope in zip(model.parameters(), start, gradient, strict=True):
                p.copy_(origin - a * slope)
        for batch, (y0, g0) in zip(raws, before, strict=True):
            y1, g1 = _outputs_and_slopes(model, batch, layers)
            for layer in range(len(layers)):
                shape = (rows or len(y0[layer]), -1)
                cut = [t[layer].detach().reshape(shape) for t in (y0, g0, y1, g1)]
                for a0, s0, a1, s1 in zip(*cut, strict=True):
                    beta[layer] = max(beta[layer], float((s1 - s0).norm() / (a1 - a0).norm()))
    return {"beta": beta, "quadratic_form": forms}


def normalised(y: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Write out batch normalisation of (N, units, …) by the batch's biased statistics."""
    axes = [axis for axis in range(y.dim()) if axis != 1]
    shape = [1, -1] + [1] * (y.dim() - 2)
    mean = y.mean(axes, keepdim=True)
    variance = ((y - mean) ** 2).mean(axes, keepdim=True)
    return gamma.view(shape) * (y - mean) / torch.sqrt(variance + eps) + beta.view(shape)


def normalisation_sides(
    behind: Callable[[Tensor], Tensor], y: Tensor, gamma: Tensor, beta: Tensor, eps: float
) -> dict[str, list[float]]:
    """Return both sides of Theorems 4.1 and 4.2 from dense Hessians; `behind` maps z to L."""
    y = y.detach()
    z = normalised(y, gamma, beta, eps).detach()
    through = lambda value: behind(normalised(value, gamma, beta, eps))  # noqa: E731
    slope_y = torch.autograd.functional.jacobian(through, y).movedim(1, 0).flatten(1)
    slope_z = torch.autograd.functional.jacobian(behind, z).movedim(1, 0).flatten(1)
    m = slope_y.shape[1]
    curve_y = torch.autograd.functional.hessian(through, y)
    curve_z = torch.autograd.functional.hessian(behind, z)
    sides: dict[str, list[float]] = {
        name: []
        for name in ("lipschitz_left", "lipschitz_right", "smoothness_left", "smoothness_right")
    }
    for unit in range(y.shape[1]):
        values = y[:, unit].flatten()
        sigma2 = ((values - values.mean()) ** 2).mean() + eps
        hat = (values - values.mean()) / sigma2.sqrt()
        v, g, factor = slope_y[unit], slope_z[unit], gamma[unit] ** 2 / sigma2
        h_y, h_z = (_block(curve, y.dim(), unit, m) for curve in (curve_y, curve_z))
        sides["lipschitz_left"].append(float(v @ v))
        removed = g.sum() ** 2 / m + (g @ hat) ** 2 / m
        sides["lipschitz_right"].append(float(factor * (g @ g - removed)))
        sides["smoothness_left"].append(float(v @ h_y @ v))
        shrink = gamma[unit] / (m * sigma2) * (g @ hat) * (v @ v)
        sides["smoothness_right"].append(float(factor * (v @ h_z @ v) - shrink))
    return sides


def _block(curve: Tensor, dims: int, unit: int, m: int) -> Tensor:
    """Return one unit's (m, m) block of a Hessian of shape (N, units, …, N, units, …)."""
    return curve.select(1, unit).select(dims, unit).reshape(m, m)


def unit_hessian(
    loss: Callable[[Weights], Tensor], weights: Weights, layer: str, unit: int
) -> Tensor:
    """Return the dense Hessian of the loss in (bias, weights) of a unit; a missing bias is 0.

    `loss` takes all weights; a bias that is missing in the model is given all the same.
    """
    matrix = weights[f"{layer}.weight"]
    bias = weights.get(f"{layer}.bias", torch.zeros(len(matrix), dtype=matrix.dtype))

    def of_unit(values: Tensor) -> Tensor:
        row, shift = values[1:].reshape(1, *matrix.shape[1:]), values[:1]
        changed = {
            **weights,
            f"{layer}.weight": torch.cat([matrix[:unit], row, matrix[unit + 1 :]]),
            f"{layer}.bias": torch.cat([bias[:unit], shift, bias[unit + 1 :]]),
        }
        return loss(changed)

    start = torch.cat([bias[unit : unit + 1], matrix[unit].flatten()])
    return torch.autograd.functional.hessian(of_unit, start)


def condition(matrix: Tensor, rank: int | None = None) -> float:
    """Return max|λ| ÷ min|λ| over the eigenvalues beyond n·ε of the largest.

    A matrix of known lower rank has that many: rounding leaves more than n·ε of the others.
    """
    values = torch.linalg.eigvalsh((matrix + matrix.T) / 2).abs().sort(descending=True).values
    kept = values[:rank]
    kept = kept[kept > len(matrix) * 2.220446049250313e-16 * values.max()]
    return float(kept.max() / kept.min())


def preconditioner(features: Tensor) -> Tensor:
    """Return P = UD of Lange et al. (2022), eq. 12, for features of shape (rows, n)."""
    n = features.shape[1]
    mean = features.mean(0)
    deviation = ((features - mean) ** 2).mean(0).sqrt()
    u = torch.eye(n + 1, dtype=torch.float64)
    u[0, 1:] = -mean
    return u @ torch.diag(torch.cat([torch.ones(1, dtype=torch.float64), 1 / deviation]))


def parameter_hessian(
    loss: Callable[[Weights], Tensor], weights: Weights, names: Sequence[str]
) -> Tensor:
    """Return the dense Hessian of the loss in the named weights, flattened one after another."""
    sizes = [weights[name].numel() for name in names]

    def of_vector(vector: Tensor) -> Tensor:
        parts = torch.split(vector, sizes)
        changed = {n: p.reshape(weights[n].shape) for n, p in zip(names, parts, strict=True)}
        return loss({**weights, **changed})

    start = torch.cat([weights[name].flatten() for name in names])
    return torch.autograd.functional.hessian(of_vector, start)


def tanh3(weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Write out `cases.Tanh3`; a bias of the middle layer is taken where there is one."""
    hidden = torch.tanh(x @ weights["enter.weight"].T + weights["enter.bias"])
    hidden = torch.tanh(hidden @ weights["middle.weight"].T + weights.get("middle.bias", 0))
    return hidden @ weights["leave.weight"].T + weights["leave.bias"]


def small_conv(weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Write out `cases.SmallConvNet`."""
    hidden = F.conv2d(x, weights["first.weight"], weights["first.bias"], padding=1).relu()
    shift = weights.get("second.bias")
    hidden = torch.tanh(F.conv2d(hidden, weights["second.weight"], shift, stride=2, groups=2))
    return hidden.flatten(1) @ weights["leave.weight"].T + weights["leave.bias"]


def small_norm(weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Write out `cases.SmallBatchNormNet` in training mode."""
    first = F.conv2d(x, weights["conv.weight"], weights["conv.bias"], padding=1)
    scale, shift = weights["norm2d.weight"], weights["norm2d.bias"]
    hidden = torch.tanh(normalised(first, scale, shift, 1e-5)).flatten(1)
    second = hidden @ weights["dense.weight"].T + weights["dense.bias"]
    scale, shift = weights["norm1d.weight"], weights["norm1d.bias"]
    hidden = torch.tanh(normalised(second, scale, shift, 1e-5))
    return hidden @ weights["leave.weight"].T + weights["leave.bias"]


def cross_entropy_of(
    forward: Callable[[Weights, Tensor], Tensor], raws: Raws
) -> Callable[[Weights], Tensor]:
    """Return the mean cross-entropy of a written-out forward pass, as a function of weights."""
    samples = sum(len(y) for _, y in raws)

    def loss(weights: Weights) -> Tensor:
        totals = [F.cross_entropy(forward(weights, x), y, reduction="sum") for x, y in raws]
        return torch.stack(totals).sum() / samples

    return loss
