"""The dense, deep linear and least-squares networks against their formulas."""

import pytest
import torch

from landscape_cli.errors import AdapterError
from sample_models.architectures import MLP, DeepLinear, LeastSquares, Style
from sample_models.data.least_squares import make_least_squares


def standardised(values):
    return (values - values.mean(0)) / (values.var(0, correction=0) + 1e-5).sqrt()


def test_the_dense_net_of_100_100_100_has_its_known_size():
    count = sum(p.numel() for p in MLP().parameters())
    assert count == 785 * 100 + 2 * 101 * 100 + 101 * 10


def test_the_dense_net_normalises_what_the_next_layer_sees():
    style = Style(norm="batch", norm_position="after")
    model = MLP((5,), in_features=4, classes=3, style=style).double()
    inputs = torch.randn(7, 2, 2, dtype=torch.float64)
    first, output = model.hidden[0].layer, model.output
    active = (inputs.flatten(1) @ first.weight.T + first.bias).clamp(min=0)
    expected = standardised(active) @ output.weight.T + output.bias
    assert torch.allclose(model(inputs), expected, rtol=1e-12)


def test_the_dense_net_normalises_before_the_activation_if_asked():
    style = Style(norm="batch", norm_position="before", activation="tanh")
    model = MLP((5,), in_features=4, classes=3, style=style).double()
    inputs = torch.randn(7, 4, dtype=torch.float64)
    first, output = model.hidden[0].layer, model.output
    active = standardised(inputs @ first.weight.T + first.bias).tanh()
    assert torch.allclose(model(inputs), active @ output.weight.T + output.bias, rtol=1e-12)


def test_the_dense_nets_default_is_behind_the_activation():
    assert MLP.default_style.norm_position == "after"


def test_the_deep_linear_net_is_a_product_of_25_matrices():
    model = DeepLinear().double()
    inputs = torch.randn(6, 10, dtype=torch.float64)
    weights = list(model.parameters())
    assert [tuple(weight.shape) for weight in weights] == [(10, 10)] * 25
    product = torch.eye(10, dtype=torch.float64)
    for weight in weights:
        product = weight @ product
    assert torch.allclose(model(inputs), inputs @ product.T, rtol=1e-10)


def test_the_deep_linear_net_normalises_between_its_layers_only():
    model = DeepLinear(3, width=4, style=Style(norm="batch", activation="identity")).double()
    inputs = torch.randn(9, 4, dtype=torch.float64)
    values = inputs
    for block in model.hidden:
        values = standardised(values @ block.layer.weight.T)
    assert torch.allclose(model(inputs), values @ model.output.weight.T, rtol=1e-11)


def test_a_deep_linear_net_of_one_layer_is_that_layer():
    assert [tuple(p.shape) for p in DeepLinear(1, width=3).parameters()] == [(3, 3)]


def test_least_squares_is_an_inner_product():
    model = LeastSquares(4).double()
    inputs = torch.randn(6, 4, dtype=torch.float64)
    assert torch.equal(model(inputs), inputs @ model.layer.weight.T)


def test_normalised_least_squares_has_the_gradients_of_the_published_update():
    data = make_least_squares(60, features=5, condition=30.0, noise=0.3, dtype="float64")
    inputs, targets = data.inputs, data.targets
    style = Style(norm="batch", activation="identity")
    model = LeastSquares(5, scale=0.7, style=style).double()
    moment, cross = inputs.T @ inputs / 60, (inputs.T @ targets / 60)[:, 0]
    weight = model.layer.weight.detach()[0]
    length = (weight @ moment @ weight).sqrt()
    loss = (targets - model(inputs)).square().mean() / 2
    found = torch.autograd.grad(loss, [model.scale, model.layer.weight])
    a = 0.7
    wanted_a = -(weight @ cross / length - a)
    wanted_w = -a / length * (cross - weight @ cross / length**2 * moment @ weight)
    # 1e-7: the scale starts as the float32 nearest to 0.7.
    assert torch.allclose(found[0], wanted_a.reshape(1), rtol=1e-6)
    assert torch.allclose(found[1][0], wanted_w, rtol=1e-6)


def test_normalised_least_squares_does_not_see_the_length_of_its_weights():
    model = LeastSquares(4, style=Style(norm="batch")).double()
    inputs = torch.randn(30, 4, dtype=torch.float64)
    before = model(inputs).detach()
    with torch.no_grad():
        model.layer.weight.mul_(1000)
    assert torch.allclose(model(inputs), before, rtol=1e-12)


@pytest.mark.parametrize("norm", ["layer", "group", "weight", "renorm"])
def test_least_squares_refuses_norms_that_mean_nothing_to_one_unit(norm):
    with pytest.raises(AdapterError, match="does not apply to the one unit"):
        LeastSquares(4, style=Style(norm=norm))
