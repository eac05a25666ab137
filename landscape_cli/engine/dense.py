"""Many points of a dense chain at once, features first, with the derivative written out.

A point's hidden values have shape (features, samples) and those of K points (K, features,
samples), so that every layer is one batched product W·h of small matrices. Along a slice the
first layer's output is affine in the coordinates, W₁(a)X = W₁X − a·D₁X, and is never multiplied
again; its gradient lies in the space that the samples span, where it has fewer numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from landscape_cli.engine.chain import Activation, Chain, Dense, Norm, Step
from landscape_cli.engine.chunks import columns_of, loss_columns, row_distances, row_sums
from landscape_cli.engine.samples import Samples, loss_and_slope
from landscape_cli.engine.strategy import Slice
from landscape_cli.objective import Objective
from landscape_cli.parameters import inner_product
from landscape_cli.site import Site


class DenseEvaluation:
    """Evaluates points of a slice of a dense chain.

    Args:
        site: where the slice starts; the model is not touched.
        slice_: directions, and whether gradients are wanted.
        chain: what the model is.
        samples: the batches, or what stands for them.
    """

    def __init__(self, site: Site, slice_: Slice, chain: Chain, samples: list[Samples]) -> None:
        self._chain = chain
        self._gradients = slice_.gradients
        self._objective = site.objective
        self._basis = _row_space(site.objective, samples) if slice_.gradients else None
        self._samples = [_in_row_space(s, self._basis) for s in samples]
        self._layout = _Layout(site, slice_, chain, self._basis)
        self._first = [_affine(site, slice_, chain, s) for s in samples]

    def __call__(self, points: np.ndarray) -> Tensor:
        """Return the columns of K points, float64 of shape (K, 5)."""
        layout = self._layout
        steps = torch.from_numpy(points).to(layout.origin.device)
        weights = layout.weights(steps)
        gradients = layout.empty_gradients(len(points)) if self._gradients else None
        losses = torch.zeros(len(points), dtype=torch.float64, device=steps.device)
        for index, (samples, first) in enumerate(zip(self._samples, self._first, strict=True)):
            run = _Pass(layout, weights, gradients, samples, again=index > 0)
            losses += run.evaluate(self._chain, first.at(steps), self._objective)
        if gradients is None:
            return loss_columns(losses)
        sums = row_sums(gradients, layout.reference)
        return columns_of(losses, sums, layout.distances(weights, steps))


@dataclass(frozen=True)
class _Affine:
    """The first layer's output as a function of the coordinates: base − Σⱼ cⱼ·slopeⱼ."""

    base: Tensor
    slopes: tuple[Tensor, ...]

    def at(self, steps: Tensor) -> Tensor:
        """Return the outputs of K points, shape (K, features, n)."""
        narrow = steps.to(self.base.dtype)
        values = torch.addcmul(self.base, narrow[:, 0, None, None], self.slopes[0], value=-1)
        for index, slope in enumerate(self.slopes[1:], start=1):
            values.addcmul_(narrow[:, index, None, None], slope, value=-1)
        return values


def _affine(site: Site, slice_: Slice, chain: Chain, samples: Samples) -> _Affine:
    layer = chain.steps[0]
    assert isinstance(layer, Dense)

    def apply(tensors: tuple[Tensor, ...] | list[Tensor]) -> Tensor:
        output = tensors[layer.weight].double() @ samples.inputs.double()
        if layer.bias >= 0:
            output = output + _outer(tensors[layer.bias].double(), samples)
        return output.to(samples.inputs.dtype)

    slopes = tuple(apply(list(direction)) for direction in slice_.directions)
    return _Affine(apply(site.parameters.origin), slopes)


def _outer(bias: Tensor, samples: Samples) -> Tensor:
    """Return b·1ᵀ over the samples; the bias may have leading axes."""
    return (
        bias[..., None] if samples.ones is None else bias[..., None] * samples.ones.to(bias.dtype)
    )


def _row_space(objective: Objective, samples: list[Samples]) -> Tensor | None:
    """Return an orthonormal basis Q of what the inputs span, where that has fewer axes."""
    inputs = torch.cat([s.inputs for s in samples], dim=1)
    if inputs.shape[1] >= inputs.shape[0]:
        return None
    if objective not in _BASES:
        _BASES[objective] = torch.linalg.qr(inputs.double())[0]
    return _BASES[objective]


_BASES: WeakKeyDictionary[Objective, Tensor] = WeakKeyDictionary()
"""The basis of an objective's inputs, the same for every line at its checkpoint."""


def _in_row_space(samples: Samples, basis: Tensor | None) -> Samples:
    if basis is None:
        return samples
    rotated = (basis.T @ samples.inputs.double()).to(samples.inputs.dtype)
    return Samples(rotated, samples.batch, samples.ones, samples.target, samples.count)


class _Layout:
    """Where the chain's tensors lie in rows of one matrix: a row per point.

    The first layer's weight and bias are never formed: only their gradients have columns.
    """

    def __init__(self, site: Site, slice_: Slice, chain: Chain, basis: Tensor | None) -> None:
        first, *rest = chain.positions
        assert isinstance(chain.steps[0], Dense)
        if chain.steps[0].bias >= 0:
            rest = rest[1:]
        self._formed = rest
        formed = set(rest)
        origin = site.parameters.origin
        self._exact = [p for p in range(len(origin)) if p not in formed]
        self._first, self._basis = first, basis
        self.origin = _flat([origin[p] for p in rest], origin[0])
        self._slopes = [_flat([d[p] for p in rest], origin[0]) for d in slice_.directions]
        self._weight_slots = _slots([(p, origin[p].shape) for p in rest])
        width = origin[first].shape[1] if basis is None else basis.shape[1]
        shapes = [(p, origin[p].shape) for p in chain.positions[1:]]
        shapes = [(first, torch.Size([origin[first].shape[0], width])), *shapes]
        self._gradient_slots = _slots(shapes)
        self.reference = self._reference(site, chain)
        self._gram = self._exact_products(slice_)

    def _reference(self, site: Site, chain: Chain) -> Tensor:
        """Return g in the order of the gradients' columns; float64."""
        wide = {p: site.gradient[p].double() for p in chain.positions}
        if self._basis is not None:
            wide[self._first] = wide[self._first] @ self._basis
        return torch.cat([wide[p].reshape(-1) for p in chain.positions])

    def _exact_products(self, slice_: Slice) -> Tensor:
        """Return ⟨dᵢ, dⱼ⟩ over the tensors that are not formed; float64, shape (J, J)."""
        parts = [[d[p] for p in self._exact] for d in slice_.directions]
        rows = [torch.stack([inner_product(a, b) for b in parts]) for a in parts]
        return torch.stack(rows)

    def weights(self, steps: Tensor) -> Tensor:
        """Return the formed tensors of K points, one row each."""
        narrow = steps.to(self.origin.dtype)
        rows = torch.addcmul(self.origin, narrow[:, :1], self._slopes[0], value=-1)
        for index, slope in enumerate(self._slopes[1:], start=1):
            rows.addcmul_(narrow[:, index, None], slope, value=-1)
        return rows

    def empty_gradients(self, count: int) -> Tensor:
        """Return room for the gradients of K points, one row each."""
        return self.origin.new_empty(count, len(self.reference))

    def weight(self, rows: Tensor, position: int) -> Tensor:
        """Return one tensor of all points, a view."""
        return _view(rows, self._weight_slots[position])

    def gradient(self, rows: Tensor, position: int) -> Tensor:
        """Return the place of one tensor's gradient at all points, a view."""
        return _view(rows, self._gradient_slots[position])

    def distances(self, rows: Tensor, steps: Tensor) -> Tensor:
        """Return ‖θ(a) − θ₀‖²: formed tensors as they were rounded, the others exactly."""
        exact = ((steps @ self._gram) * steps).sum(dim=1)
        return row_distances(rows, self.origin) + exact


def _flat(tensors: list[Tensor], like: Tensor) -> Tensor:
    if not tensors:
        return like.new_empty(0)
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _slots(shapes: list[tuple[int, torch.Size]]) -> dict[int, tuple[int, torch.Size]]:
    slots, start = {}, 0
    for position, shape in shapes:
        slots[position] = (start, shape)
        start += shape.numel()
    return slots


def _view(rows: Tensor, slot: tuple[int, torch.Size]) -> Tensor:
    start, shape = slot
    return rows[:, start : start + shape.numel()].view(len(rows), *shape)


@dataclass
class _Pass:
    """One batch through the chain and back, for K points."""

    layout: _Layout
    weights: Tensor
    gradients: Tensor | None
    samples: Samples
    again: bool

    def evaluate(self, chain: Chain, first: Tensor, objective: Objective) -> Tensor:
        """Return the losses of K points; their gradients go to their places."""
        values, kept = first, []
        for step in chain.steps[1:]:
            outputs, extra = self._forward(step, values)
            kept.append((step, values, outputs, extra))
            values = outputs
        wanted = self.gradients is not None
        losses, errors = loss_and_slope(values, self.samples, objective, wanted=wanted)
        if wanted:
            for step, inputs, outputs, extra in reversed(kept):
                errors = self._backward(step, errors, inputs, outputs, extra)
            self._backward_first(chain.steps[0], errors)
        return losses

    def _forward(self, step: Step, values: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        if isinstance(step, Activation):
            return step.forward(values), ()
        if isinstance(step, Norm):
            return self._normalise(step, values)
        weight = self.layout.weight(self.weights, step.weight)
        if step.bias < 0:
            return torch.bmm(weight, values), ()
        bias = _outer(self.layout.weight(self.weights, step.bias), self.samples)
        return torch.bmm(weight, values).add_(bias), ()

    def _backward(
        self, step: Step, errors: Tensor, inputs: Tensor, outputs: Tensor, extra: tuple[Tensor, ...]
    ) -> Tensor:
        if isinstance(step, Activation):
            return step.backward(errors, inputs, outputs)
        if isinstance(step, Norm):
            return self._normalise_back(step, errors, *extra)
        self._keep_product(step.weight, errors, inputs)
        self._keep_bias(step.bias, errors)
        return torch.bmm(self.layout.weight(self.weights, step.weight).transpose(1, 2), errors)

    def _backward_first(self, step: Step, errors: Tensor) -> None:
        assert isinstance(step, Dense)
        inputs = self.samples.inputs.expand(len(errors), -1, -1)
        self._keep_product(step.weight, errors, inputs)
        self._keep_bias(step.bias, errors)

    def _keep_product(self, position: int, errors: Tensor, inputs: Tensor) -> None:
        assert self.gradients is not None
        # Written into its place at once, a batch of products would be done one after the other.
        self._keep(position, torch.bmm(errors, inputs.transpose(1, 2)))

    def _keep_bias(self, position: int, errors: Tensor) -> None:
        if position >= 0:
            self._keep(position, self._over_samples(errors))

    def _keep(self, position: int, values: Tensor) -> None:
        assert self.gradients is not None
        place = self.layout.gradient(self.gradients, position)
        if self.again:
            place.add_(values)
        else:
            place.copy_(values)

    def _over_samples(self, values: Tensor) -> Tensor:
        """Return Σ over the samples, the derivative by what a vector of ones multiplies."""
        ones = self.samples.ones
        return values.sum(dim=2) if ones is None else values @ ones

    def _normalise(self, step: Norm, values: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return γ·z/√(σ² + ε) + β with z centred, and z and 1/√(σ² + ε)."""
        if step.statistics is None:
            mean = self._over_samples(values) / self.samples.count
            centred = values - _outer(mean, self.samples)
            variance = centred.square().sum(dim=2) / self.samples.count
        else:
            given = [s.to(values.dtype).expand(len(values), -1) for s in step.statistics]
            centred, variance = values - _outer(given[0], self.samples), given[1]
        inverse = torch.rsqrt(variance + step.eps)
        scale = inverse
        if step.weight >= 0:
            scale = scale * self.layout.weight(self.weights, step.weight)
        outputs = centred * scale[..., None]
        if step.bias >= 0:
            outputs += _outer(self.layout.weight(self.weights, step.bias), self.samples)
        return outputs, (centred, inverse, scale)

    def _normalise_back(
        self, step: Norm, errors: Tensor, centred: Tensor, inverse: Tensor, scale: Tensor
    ) -> Tensor:
        along = (errors * centred).sum(dim=2)
        if step.weight >= 0:
            self._keep(step.weight, along * inverse)
        self._keep_bias(step.bias, errors)
        back = errors * scale[..., None]
        if step.statistics is not None:
            return back
        back -= centred * (scale * inverse.square() * along / self.samples.count)[..., None]
        return back - _outer(self._over_samples(back) / self.samples.count, self.samples)
