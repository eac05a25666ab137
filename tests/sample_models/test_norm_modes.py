"""Every normalisation under the probe's objective, in all three norm modes."""

import typing

import pytest
import torch
from torch.nn import functional

from landscape_cli.batches import Batch
from landscape_cli.losses import resolve
from landscape_cli.objective import Objective
from landscape_cli.specs import NormMode
from sample_models.adapter import build_data, build_model
from sample_models.normalisation import NAMES


def objective_of(norm, norm_mode):
    model = build_model(
        "mlp", hidden="6,5", in_features=16, classes=3, norm=norm, activation="tanh", seed=0
    ).double()
    data = build_data("images", samples=21, classes=3, channels=1, image_size=4)
    model(data.inputs.double() + 1)  # running statistics that are not those of the batch
    halves = [slice(0, 12), slice(12, 21)]
    batches = [Batch.split((data.inputs[h].double(), data.targets[h]), model) for h in halves]
    return Objective(model, batches, resolve("cross-entropy", model), norm_mode=norm_mode)


@pytest.mark.parametrize("norm", NAMES)
@pytest.mark.parametrize("norm_mode", typing.get_args(NormMode))
def test_a_hessian_vector_product_is_the_change_of_the_gradient(norm, norm_mode):
    objective = objective_of(norm, norm_mode)
    before = {name: tensor.clone() for name, tensor in objective.model.state_dict().items()}
    with objective:
        tensors = objective.parameters.tensors
        vector = [torch.randn_like(tensor) for tensor in tensors]
        product = objective.hessian_vector_product(vector)
        gradients = []
        for sign in (1, -1):
            moved = [(t + sign * 1e-6 * v).detach() for t, v in zip(tensors, vector, strict=True)]
            kept = [tensor.detach().clone() for tensor in tensors]
            _overwrite(tensors, moved)
            gradients.append([g.clone() for g in objective.value_and_gradient()[1]])
            _overwrite(tensors, kept)
    for exact, ahead, behind in zip(product, *gradients, strict=True):
        # Central differences with 1e-6: rounding of the gradients leaves about 1e-9.
        assert torch.allclose(exact, (ahead - behind) / 2e-6, rtol=1e-5, atol=1e-8)
    after = objective.model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def _overwrite(tensors, values):
    with torch.no_grad():
        for tensor, value in zip(tensors, values, strict=True):
            tensor.copy_(value)


@pytest.mark.parametrize("norm", ["batch", "l1", "l2", "linf", "renorm"])
def test_frozen_gradients_are_those_with_the_statistics_detached(norm):
    with objective_of(norm, "frozen") as objective:
        value, gradient = objective.value_and_gradient()
    model = objective.model
    parameters = dict(model.named_parameters())
    total = torch.zeros((), dtype=torch.float64)
    for batch in objective.batches:
        values = batch.inputs[0].flatten(1)
        for block in model.hidden:
            values = _normalised(block.norm, block.layer(values).tanh())
        total = total + functional.cross_entropy(
            model.output(values), batch.target, reduction="sum"
        )
    assert torch.allclose(value, total / 21, rtol=1e-12)
    expected = torch.autograd.grad(total / 21, list(parameters.values()))
    for found, wanted in zip(gradient, expected, strict=True):
        assert torch.allclose(found, wanted, rtol=1e-9, atol=1e-13)


def _normalised(layer, values):
    """The layer in training mode, with everything that it takes from the batch detached."""
    fixed = values.detach()
    mean = fixed.mean(0)
    square = {
        "LpNorm": lambda: _power_mean(fixed, getattr(layer, "order", "")) ** 2,
        "BatchNorm1d": lambda: fixed.var(0, correction=0),
        "BatchRenorm": lambda: fixed.var(0, correction=0),  # in its warm-up
    }[type(layer).__name__]()
    return (values - mean) / (square + layer.eps).sqrt() * layer.weight + layer.bias


def _power_mean(values, order):
    if order == "linf":
        return values.abs().amax(0)
    power = {"l1": 1, "l2": 2}[order]
    return (values.abs() ** power).mean(0) ** (1 / power)
