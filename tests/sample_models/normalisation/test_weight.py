"""Weight normalisation: the same function, other coordinates."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from sample_models.normalisation import normalise_weight

LAYERS = [nn.Linear(3, 4), nn.Conv2d(3, 4, 2)]
SHAPES = [(5, 3), (5, 3, 4, 4)]


@pytest.mark.parametrize(("layer", "shape"), list(zip(LAYERS, SHAPES, strict=True)))
def test_the_function_does_not_change(layer, shape):
    inputs = torch.randn(shape)
    normalised = normalise_weight(copy.deepcopy(layer))
    assert torch.allclose(normalised(inputs), layer(inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layer", LAYERS)
def test_magnitude_is_the_length_of_every_unit(layer):
    normalised = normalise_weight(copy.deepcopy(layer)).double()
    magnitude = normalised.parametrizations.weight.original0
    with torch.no_grad():
        magnitude.copy_(torch.arange(1.0, 5).reshape(magnitude.shape))
    lengths = normalised.weight.flatten(1).norm(dim=1)
    assert torch.allclose(lengths, torch.arange(1.0, 5).double(), rtol=1e-14)


def test_it_can_be_differentiated_twice():
    normalised = normalise_weight(nn.Linear(3, 2)).double()
    tensors = {name: p.detach().requires_grad_() for name, p in normalised.named_parameters()}
    inputs = torch.randn(4, 3, dtype=torch.float64)

    def outputs(*values):
        return functional_call(normalised, dict(zip(tensors, values, strict=True)), (inputs,))

    assert torch.autograd.gradcheck(outputs, tuple(tensors.values()))
    assert torch.autograd.gradgradcheck(outputs, tuple(tensors.values()))


def test_points_can_be_stacked():
    normalised = normalise_weight(nn.Linear(3, 2)).double()
    inputs = torch.randn(4, 3, dtype=torch.float64)
    stacked = {name: torch.randn(5, *p.shape).double() for name, p in normalised.named_parameters()}
    outputs = vmap(lambda tensors: functional_call(normalised, tensors, (inputs,)))(stacked)
    for k in range(5):
        point = {name: tensor[k] for name, tensor in stacked.items()}
        assert torch.allclose(outputs[k], functional_call(normalised, point, (inputs,)))
