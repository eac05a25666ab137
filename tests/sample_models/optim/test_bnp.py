"""BNP against explicit preconditioner matrices, against BN by Prop. 7, and its limits."""

import copy
import doctest
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from landscape_cli.errors import SpecError
from landscape_cli.training import train
from sample_models.optim import BNP, bnp


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def sgd(model, lr=0.1, **options):
    return torch.optim.SGD(model.parameters(), lr=lr, **options)


def backward(model, x):
    model(x).sin().square().mean().backward()


def slow_moments(layer, inputs):
    """Mean and variance per input feature or channel, as sums in numpy."""
    values = inputs.detach().numpy()
    if isinstance(layer, nn.Linear):
        columns = values.reshape(-1, values.shape[-1])
    else:
        columns = np.moveaxis(values, 1, -1).reshape(-1, values.shape[1])
    mean = columns.sum(0) / len(columns)
    return mean, ((columns - mean) ** 2).sum(0) / len(columns)


def explicit(layer, mean, variance, q_squared):
    """Return the layer's gradients after (1/q²) P Pᵀ, unit by unit, with P written out."""
    weight, bias = layer.weight.grad.numpy(), layer.bias.grad.numpy()
    kernel = int(np.prod(weight.shape[2:]))
    groups = getattr(layer, "groups", 1)
    new_weight, new_bias = np.empty_like(weight), np.empty_like(bias)
    for unit in range(len(weight)):
        first = unit // (len(weight) // groups) * weight.shape[1]
        seen = slice(first, first + weight.shape[1])
        mu = np.repeat(mean[seen], kernel)
        deviation = np.repeat(np.sqrt(variance[seen]), kernel)
        size = len(mu) + 1
        shift, scale = np.eye(size), np.eye(size)
        shift[0, 1:] = -mu
        scale[1:, 1:] = np.diag(1 / deviation)
        P = shift @ scale
        gradient = np.concatenate([[bias[unit]], weight[unit].reshape(-1)])
        moved = P @ P.T @ gradient / q_squared
        new_bias[unit], new_weight[unit] = moved[0], moved[1:].reshape(weight[unit].shape)
    return new_weight, new_bias


LAYERS = {
    "dense": (lambda: nn.Linear(5, 4), (7, 5), max(5 / 7, 1.0)),
    "wide dense": (lambda: nn.Linear(30, 4), (6, 30), 30 / 6),
    "dense on sequences": (lambda: nn.Linear(5, 4), (3, 9, 5), np.sqrt(9)),
    "conv same": (lambda: nn.Conv2d(3, 4, 3, padding=1), (5, 3, 6, 7), np.sqrt(42)),
    "conv deep": (lambda: nn.Conv2d(40, 2, 3, padding="same"), (2, 40, 4, 4), 40 * 9 / 2),
    "conv stride": (lambda: nn.Conv2d(3, 4, 3, stride=2), (5, 3, 9, 9), 3 * 9 / 5),
    "conv groups": (lambda: nn.Conv2d(4, 6, 3, groups=2), (5, 4, 6, 6), np.sqrt(16)),
    "conv depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4), (5, 4, 6, 6), np.sqrt(16)),
    "conv dilated": (lambda: nn.Conv2d(3, 4, 3, dilation=2), (9, 3, 8, 8), np.sqrt(16)),
    "conv 1d": (lambda: nn.Conv1d(3, 4, 5), (5, 3, 12), 3 * 5 / 5),
    "conv 3d": (lambda: nn.Conv3d(2, 3, 2), (5, 2, 4, 4, 4), np.sqrt(27)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_algorithms_two_and_three_are_the_preconditioner_matrix(name):
    make, shape, q_squared = LAYERS[name]
    layer = make().double()
    preconditioner = BNP(layer, sgd(layer))
    mean = np.zeros(shape[1] if "conv" in name else shape[-1])
    variance = np.ones_like(mean)
    for _ in range(3):  # running statistics over several steps
        inputs = 2 + 3 * torch.randn(shape, dtype=torch.float64)
        layer.zero_grad()
        backward(layer, inputs)
        batch_mean, batch_variance = slow_moments(layer, inputs)
        mean = 0.99 * mean + 0.01 * batch_mean
        variance = 0.99 * variance + 0.01 * batch_variance
        damped = variance + 1e-2 * variance.max() + 1e-4
        wanted_weight, wanted_bias = explicit(layer, mean, damped, q_squared)
        preconditioner.precondition()
        # Float64: the two differ in the order of their sums alone.
        assert np.allclose(layer.weight.grad.numpy(), wanted_weight, rtol=1e-10, atol=1e-14)
        assert np.allclose(layer.bias.grad.numpy(), wanted_bias, rtol=1e-10, atol=1e-13)


class WithoutGradient(nn.Module):
    """B₀,₁ by the batch's own statistics, through which no gradient passes; remembers them."""

    def forward(self, h):
        axes = [axis for axis in range(h.dim()) if axis != 1]
        shape = [-1 if axis == 1 else 1 for axis in range(h.dim())]
        self.mean = h.detach().mean(axes)
        self.deviation = h.detach().var(axes, correction=0).sqrt()
        return (h - self.mean.reshape(shape)) / self.deviation.reshape(shape)


def post_activation_bn(layers, between):
    """A BN network: every layer sees normalised inputs; `between` is what follows a layer."""
    parts = []
    for layer, after in zip(layers, between, strict=True):
        parts += [WithoutGradient(), layer, after]
    return nn.Sequential(*parts)


def vanilla_twin(layers, between, norms):
    """The network that is equivalent to a BN network: Ŵ = W/σ, b̂ = b − W(μ/σ)."""
    parts = []
    for layer, after, norm in zip(layers, between, norms, strict=True):
        parts += [folded(layer, norm), after]
    return nn.Sequential(*parts)


def folded(layer, norm):
    twin = copy.deepcopy(layer)
    groups = getattr(layer, "groups", 1)
    with torch.no_grad():
        shape = (groups, 1, -1) + (1,) * (layer.weight.dim() - 2)
        by_group = layer.weight.reshape(groups, -1, *layer.weight.shape[1:])
        scaled = by_group / norm.deviation.reshape(shape)
        twin.weight.copy_(scaled.reshape(layer.weight.shape))
        shift = scaled * norm.mean.reshape(shape)
        twin.bias.copy_(layer.bias - shift.flatten(2).sum(2).reshape(-1))
    return twin


def dense_network():
    sizes = [6, 9, 8, 3]
    layers = [nn.Linear(*pair) for pair in pairwise(sizes)]
    return layers, [nn.Tanh(), nn.ReLU(), nn.Identity()], (20, 6)


def convolutional_network():
    layers = [
        nn.Conv2d(2, 4, 3),
        nn.Conv2d(4, 6, 3, stride=2, groups=2),
        nn.Linear(24, 3),
    ]
    return layers, [nn.Tanh(), nn.Sequential(nn.ReLU(), nn.Flatten()), nn.Identity()], (9, 2, 7, 7)


@pytest.mark.parametrize("network", [dense_network, convolutional_network])
def test_prop_7_one_step_of_bnp_is_one_step_of_bn(network):
    layers, between, shape = network()
    layers = [layer.double() for layer in layers]
    x = 1 + 2 * torch.randn(shape, dtype=torch.float64)
    labels = torch.randint(0, 3, (len(x),))
    bn = post_activation_bn(layers, between)
    outputs = bn(x)
    norms = [part for part in bn if isinstance(part, WithoutGradient)]
    vanilla = vanilla_twin(layers, between, norms)
    preconditioner = BNP(vanilla, sgd(vanilla), epsilon1=0, epsilon2=0, rho=0, q_squared=1)
    assert preconditioner.skipped == ()
    twin_outputs = vanilla(x)
    assert torch.allclose(outputs, twin_outputs, rtol=0, atol=1e-12)

    functional.cross_entropy(outputs, labels).backward()
    sgd(bn).step()
    functional.cross_entropy(twin_outputs, labels).backward()
    preconditioner.step()

    # The BN network after its step, folded with the statistics of before the step.
    stepped = [part for part in vanilla if isinstance(part, nn.Linear | nn.Conv2d)]
    for layer, norm, twin in zip(layers, norms, stepped, strict=True):
        wanted = folded(layer, norm)
        assert torch.allclose(twin.weight, wanted.weight, rtol=0, atol=1e-13)
        assert torch.allclose(twin.bias, wanted.bias, rtol=0, atol=1e-13)


def test_prop_7_fails_with_the_wrong_statistics():
    """The equality above is not one that anything would satisfy."""
    layers, between, shape = dense_network()
    layers = [layer.double() for layer in layers]
    x = 1 + 2 * torch.randn(shape, dtype=torch.float64)
    bn = post_activation_bn(layers, between)
    bn(x).square().mean().backward()
    norms = [part for part in bn if isinstance(part, WithoutGradient)]
    vanilla = vanilla_twin(layers, between, norms)
    preconditioner = BNP(vanilla, sgd(vanilla))
    vanilla(x).square().mean().backward()
    sgd(bn).step()
    preconditioner.step()
    assert (vanilla[0].weight - folded(layers[0], norms[0]).weight).abs().max() > 1e-4


def test_the_own_statistics_are_those_of_batchnorm():
    x = 3 + 2 * torch.randn(11, 4, dtype=torch.float64)
    norm = nn.BatchNorm1d(4, affine=False, momentum=1.0, eps=1e-300).double()
    norm(x)
    layer = nn.Linear(4, 2).double()
    preconditioner = BNP(layer, sgd(layer), rho=0)
    backward(layer, x)
    preconditioner.precondition()
    state = preconditioner.state_dict()[""]
    assert torch.allclose(state["mean"], norm.running_mean, rtol=1e-12)
    assert torch.allclose(state["variance"] * 11 / 10, norm.running_var, rtol=1e-12)


def test_a_batch_of_one_has_the_variance_about_the_running_mean():
    layer = nn.Linear(3, 2).double()
    preconditioner = BNP(layer, sgd(layer), rho=0.9)
    mean, variance = np.zeros(3), np.ones(3)
    for _ in range(4):
        h = 5 + torch.randn(1, 3, dtype=torch.float64)
        layer.zero_grad()
        backward(layer, h)
        new = h.numpy()[0]
        variance = 0.9 * variance + 0.1 * (new - mean) ** 2
        mean = 0.9 * mean + 0.1 * new
        wanted = explicit(layer, mean, variance + 1e-2 * variance.max() + 1e-4, max(3 / 1, 1))
        preconditioner.precondition()
        assert np.allclose(layer.weight.grad.numpy(), wanted[0], rtol=1e-10)
        assert np.allclose(layer.bias.grad.numpy(), wanted[1], rtol=1e-10)


def test_one_image_has_the_variance_over_its_positions():
    layer = nn.Conv2d(2, 3, 3).double()
    preconditioner = BNP(layer, sgd(layer), rho=0)
    for image in (torch.randn(1, 2, 6, 6), torch.randn(2, 6, 6)):
        backward(layer, image.double())
        preconditioner.precondition()
        wanted = image.double().reshape(2, -1).var(1, correction=0)
        assert torch.allclose(preconditioner.state_dict()[""]["variance"], wanted)


def test_several_passes_before_a_step_count_as_one_batch():
    x = torch.randn(12, 4, dtype=torch.float64)
    layers = [nn.Linear(4, 3).double() for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    whole, parts = (BNP(layer, sgd(layer)) for layer in layers)
    layers[0](x).square().sum().backward()
    for rows in (x[:5], x[5:6], x[6:]):
        layers[1](rows).square().sum().backward()
    whole.step()
    parts.step()
    assert torch.allclose(layers[0].weight, layers[1].weight, rtol=0, atol=1e-13)
    for name in ("mean", "variance"):
        first, second = (b.state_dict()[""][name] for b in (whole, parts))
        assert torch.allclose(first, second, rtol=1e-12)


def test_a_pass_without_gradients_does_not_count():
    layer = nn.Linear(3, 2)
    preconditioner = BNP(layer, sgd(layer))
    x = torch.randn(5, 3)
    backward(layer, x)
    with torch.no_grad():
        layer(100 * x)
    preconditioner.step()
    assert torch.allclose(preconditioner.state_dict()[""]["mean"], 0.01 * x.mean(0))


def test_without_a_bias_the_weights_are_scaled_and_not_shifted():
    layer = nn.Linear(3, 2, bias=False).double()
    preconditioner = BNP(layer, sgd(layer), rho=0, epsilon1=0, epsilon2=0, q_squared=2.0)
    x = 4 + torch.randn(9, 3, dtype=torch.float64)
    backward(layer, x)
    plain = layer.weight.grad.clone()
    preconditioner.precondition()
    assert torch.allclose(layer.weight.grad, plain / x.var(0, correction=0) / 2)


def test_a_frozen_bias_is_no_bias():
    layer = nn.Linear(3, 2).double()
    layer.bias.requires_grad_(False)
    preconditioner = BNP(layer, sgd(layer), rho=0, epsilon1=0, epsilon2=0, q_squared=1)
    x = 4 + torch.randn(9, 3, dtype=torch.float64)
    backward(layer, x)
    plain = layer.weight.grad.clone()
    preconditioner.precondition()
    assert torch.allclose(layer.weight.grad, plain / x.var(0, correction=0))


def test_other_layers_and_shared_weights_keep_their_gradients():
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(6, 4),
            "norm": nn.LayerNorm(4),
            "dense": nn.Linear(4, 4),
            "output": nn.Linear(4, 6, bias=False),
            "weighted": nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
            "frozen": nn.Linear(4, 4).requires_grad_(False),
        }
    )
    model["output"].weight = model["embedding"].weight
    preconditioner = BNP(model, sgd(model))
    h = model["dense"](model["norm"](model["embedding"](torch.arange(6))))
    model["output"](model["frozen"](model["weighted"](h))).square().mean().backward()
    before = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    preconditioner.precondition()
    changed = {
        n for n, p in model.named_parameters() if n in before and (p.grad != before[n]).any()
    }
    assert changed == {"dense.weight", "dense.bias"}
    assert preconditioner.skipped == ("output", "weighted", "frozen")


def test_the_optimizers_own_step_preconditions_until_it_is_removed():
    layer = nn.Linear(3, 2)
    optimizer = sgd(layer)
    preconditioner = BNP(layer, optimizer)
    x = torch.randn(5, 3)
    backward(layer, x)
    plain = layer.weight.grad.clone()
    optimizer.step()
    assert not torch.equal(layer.weight.grad, plain)
    preconditioner.remove()
    preconditioner.zero_grad()
    backward(layer, x)
    plain = layer.weight.grad.clone()
    optimizer.step()
    assert torch.equal(layer.weight.grad, plain)


def test_momentum_and_weight_decay_work_on_preconditioned_gradients():
    layer, twin = nn.Linear(3, 2).double(), nn.Linear(3, 2).double()
    twin.load_state_dict(layer.state_dict())
    options = {"momentum": 0.9, "weight_decay": 0.1}
    preconditioner, plain = BNP(layer, sgd(layer, **options)), sgd(twin, **options)
    for _ in range(3):
        preconditioner.zero_grad()
        backward(layer, torch.randn(5, 3, dtype=torch.float64))
        preconditioner.precondition()
        for ours, theirs in zip(layer.parameters(), twin.parameters(), strict=True):
            theirs.grad = ours.grad.clone()
        preconditioner.step()  # no pass since: the gradients stay as they are
        plain.step()
        assert torch.equal(layer.weight, twin.weight)


def test_the_running_statistics_can_be_put_back():
    def course(steps, state=None, weights=None):
        layer = nn.Linear(3, 2)
        layer.load_state_dict(weights or start)
        preconditioner = BNP(layer, sgd(layer))
        if state:
            preconditioner.load_state_dict(state)
        for x in steps:
            preconditioner.zero_grad()
            backward(layer, x)
            preconditioner.step()
        return layer.state_dict(), copy.deepcopy(preconditioner.state_dict())

    start = nn.Linear(3, 2).state_dict()
    data = torch.randn(4, 5, 3)
    whole, _ = course(data)
    weights, state = course(data[:2])
    resumed, _ = course(data[2:], state, weights)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_half_precision_and_channels_last_gradients_are_served():
    layer = nn.Conv2d(3, 4, 3, padding=1).to(memory_format=torch.channels_last)
    twin = copy.deepcopy(layer).to(torch.bfloat16)
    x = torch.randn(8, 3, 6, 6).to(memory_format=torch.channels_last)
    first, second = BNP(layer, sgd(layer)), BNP(twin, sgd(twin))
    backward(layer, x)
    backward(twin, x.to(torch.bfloat16))
    first.precondition()
    second.precondition()
    assert twin.weight.grad.dtype == torch.bfloat16
    error = (twin.weight.grad.float() - layer.weight.grad).norm() / layer.weight.grad.norm()
    assert error < 0.05  # bfloat16 keeps 8 bits


def test_badly_scaled_inputs_are_learned_where_plain_descent_fails(tmp_path):
    x = torch.randn(200, 6) * torch.tensor([10.0, 3, 1, 1, 0.3, 0.1]) + 5
    y = (x - 5) @ (1 / torch.tensor([10.0, 3, 1, 1, 0.3, 0.1])).unsqueeze(1)
    last = {}
    for name in ("sgd", "bnp?rho=0"):
        torch.manual_seed(1)
        options = {"loss": "mse", "steps": 200, "batch_size": 50, "optimizer": name}
        data, rate = TensorDataset(x, y), 0.3 if name != "sgd" else 2e-3
        result = train(nn.Linear(6, 1), data, out=tmp_path / name[:3], lr=rate, **options)
        last[name] = result.losses[-1]
    assert last["bnp?rho=0"] < 0.05 * last["sgd"]


@pytest.mark.parametrize(
    "options", [{"epsilon1": -1}, {"epsilon2": -1}, {"rho": 1.0}, {"rho": -0.1}, {"q_squared": 0.0}]
)
def test_numbers_out_of_range_are_refused(options):
    layer = nn.Linear(3, 2)
    with pytest.raises(SpecError, match="out of its range"):
        BNP(layer, sgd(layer), **options)


def test_a_model_without_such_layers_and_a_closure_are_refused():
    norm = nn.BatchNorm1d(3)
    with pytest.raises(SpecError, match="no layer to precondition"):
        BNP(norm, sgd(norm))
    layer = nn.Linear(3, 2)
    preconditioner = BNP(layer, sgd(layer))
    with pytest.raises(SpecError, match="closure"):
        preconditioner.optimizer.step(lambda: torch.zeros(()))


def test_the_example_runs():
    failures, tried = doctest.testmod(bnp)
    assert failures == 0
    assert tried > 0
