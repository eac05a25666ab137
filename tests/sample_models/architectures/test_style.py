"""Initialisation and the parts that every network shares."""

import math
import typing

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from sample_models.architectures.activations import Activation, make_activation
from sample_models.architectures.initialisation import Scheme, initialise
from sample_models.architectures.style import Style

FAN_IN, FAN_OUT = 300, 500


def drawn(scheme, **options):
    layer = nn.Linear(FAN_IN, FAN_OUT)
    initialise(layer, scheme, **options)
    return layer


@pytest.mark.parametrize(
    ("scheme", "deviation"),
    [
        ("glorot", math.sqrt(2 / (FAN_IN + FAN_OUT))),
        ("glorot-uniform", math.sqrt(2 / (FAN_IN + FAN_OUT))),
        ("glorot-normal", math.sqrt(2 / (FAN_IN + FAN_OUT))),
        ("he", math.sqrt(2 / FAN_IN)),
        ("he-normal", math.sqrt(2 / FAN_IN)),
        ("he-uniform", math.sqrt(2 / FAN_IN)),
        ("normal", 0.02),
        ("torch", math.sqrt(1 / (3 * FAN_IN))),
    ],
)
def test_weights_have_the_published_deviation(scheme, deviation):
    weight = drawn(scheme).weight.detach()
    # 150,000 draws: five standard errors of the deviation are under 1 %.
    assert float(weight.std()) == pytest.approx(deviation, rel=0.01)
    assert abs(float(weight.mean())) < 5 * deviation / math.sqrt(weight.numel())


def test_every_scheme_is_tested():
    assert len(typing.get_args(Scheme)) == 8


def test_glorot_is_uniform_within_the_published_bound():
    weight = drawn("glorot").weight.detach()
    bound = math.sqrt(6 / (FAN_IN + FAN_OUT))
    assert 0.999 * bound < float(weight.abs().max()) <= bound * (1 + 1e-6)
    assert float(drawn("glorot-normal").weight.detach().abs().max()) > 1.5 * bound


def test_a_convolution_counts_its_kernel_in_both_fans():
    layer = nn.Conv2d(20, 60, 3)
    initialise(layer, "glorot")
    assert float(layer.weight.detach().std()) == pytest.approx(math.sqrt(2 / (9 * 80)), rel=0.03)


def test_biases_start_at_zero_except_torchs_own():
    assert not drawn("glorot").bias.any()
    assert drawn("torch").bias.any()


def test_the_scale_multiplies_the_same_draw():
    torch.manual_seed(3)
    whole = drawn("he-normal").weight
    torch.manual_seed(3)
    assert torch.equal(drawn("he-normal", scale=0.5).weight, whole / 2)


def test_a_module_without_weight_cannot_be_drawn():
    with pytest.raises(TypeError, match="Identity has no weight"):
        initialise(nn.Identity(), "glorot")


REFERENCES = {
    "relu": lambda x: max(x, 0),
    "leaky-relu": lambda x: x if x > 0 else 0.01 * x,
    "elu": lambda x: x if x > 0 else math.expm1(x),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + math.exp(-x)),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "identity": lambda x: x,
}


@pytest.mark.parametrize("name", typing.get_args(Activation))
def test_activations_are_their_formulas(name):
    points = torch.tensor([-2.0, -0.3, 0.0, 0.4, 1.7], dtype=torch.float64)
    expected = torch.tensor([REFERENCES[name](float(x)) for x in points], dtype=torch.float64)
    assert torch.allclose(make_activation(name)(points), expected, rtol=1e-14)


def test_layers_keep_their_names_and_draws_under_every_norm():
    weights = []
    for norm in ("none", "batch", "l1", "layer"):
        torch.manual_seed(4)
        block = Style(norm=norm).block(nn.Linear(3, 4))
        weights.append(block.state_dict()["layer.weight"])
    assert all(torch.equal(weight, weights[0]) for weight in weights)


def test_weight_norm_replaces_the_hidden_layers_weight_and_spares_the_output():
    style = Style(norm="weight")
    assert parametrize.is_parametrized(style.block(nn.Linear(3, 4)).layer, "weight")
    assert not parametrize.is_parametrized(style.initialised(nn.Linear(3, 4)))
