"""Proposition 7's two networks, against formulas written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from landscape_cli import losses
from landscape_cli.adapters.building import build_model
from landscape_cli.batches import Batch
from landscape_cli.studies import twins

SPEC = "sample:mlp?hidden=7,6&in_features=5&classes=3&seed=1"
NORM = "&norm=batch&norm_affine=False&norm_eps=0"


@pytest.fixture
def batch() -> Batch:
    generator = torch.Generator().manual_seed(3)
    inputs = 1 + torch.randn(40, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (40,), generator=generator)
    return Batch((inputs, labels), (inputs,), {}, labels, 40)


@pytest.fixture
def model(batch):
    """A BN network without hidden units that are constant over the batch, biases not zero."""
    model = build_model(SPEC + NORM + "&activation=tanh").double()
    torch.manual_seed(0)
    for layer in twins.dense_layers(model):
        nn.init.normal_(layer.bias)
    return model


def slow_forward(layers, x):
    """The BN network in numpy, with statistics held as numbers; and the statistics."""
    hidden, statistics = x, []
    for place, (weight, bias) in enumerate(layers):
        hidden = hidden @ weight.T + bias
        if place < len(layers) - 1:
            hidden = np.tanh(hidden)
            mean, deviation = hidden.mean(0), hidden.std(0)
            statistics.append((mean, deviation))
            hidden = (hidden - mean) / deviation
    return hidden, statistics


def as_numpy(layers):
    return [(weight.numpy(), bias.numpy()) for weight, bias in layers]


def test_statistics_are_those_of_the_inputs_of_the_norms(model, batch) -> None:
    _, expected = slow_forward(as_numpy(twins.layers_of(model)), batch.inputs[0].numpy())
    found = twins.Statistics.of(model, batch)
    for (mean, deviation), got, spread in zip(expected, found.means, found.deviations, strict=True):
        assert np.allclose(got.numpy(), mean, rtol=1e-12, atol=1e-15)
        assert np.allclose(spread.numpy(), deviation, rtol=1e-12, atol=1e-15)


def test_taking_statistics_and_outputs_leaves_the_buffers(model, batch) -> None:
    before = {name: value.clone() for name, value in model.named_buffers()}
    twins.Statistics.of(model, batch)
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())


def test_the_folded_network_is_the_same_function(model, batch) -> None:
    layers = twins.Statistics.of(model, batch).fold(twins.layers_of(model))
    hidden = batch.inputs[0].numpy()
    for place, (weight, bias) in enumerate(as_numpy(layers)):
        hidden = hidden @ weight.T + bias
        hidden = np.tanh(hidden) if place < len(layers) - 1 else hidden
    assert np.allclose(twins.outputs(model, batch).numpy(), hidden, rtol=0, atol=1e-12)


def test_bnp_steps_by_p_times_its_transpose(model, batch) -> None:
    """The last layer's step, with P = [1 −μᵀ; 0 I]·diag(1, 1/σ) as a matrix."""
    statistics = twins.Statistics.of(model, batch)
    start = statistics.fold(twins.layers_of(model))
    twin = build_model(SPEC + "&norm=none&activation=tanh").double()
    twins.filled(twin, start)
    twin(*batch.inputs)
    torch.nn.functional.cross_entropy(twin(*batch.inputs), batch.target).backward()
    last = twins.dense_layers(twin)[-1]
    gradient = np.column_stack([last.bias.grad.numpy(), last.weight.grad.numpy()])
    mean, deviation = statistics.means[-1].numpy(), statistics.deviations[-1].numpy()
    U = np.eye(1 + len(mean))
    U[0, 1:] = -mean
    P = U @ np.diag(np.r_[1, 1 / deviation])
    wanted = np.column_stack([start[-1][1], start[-1][0]]) - 0.1 * gradient @ P @ P.T
    twin.zero_grad()
    loss = losses.resolve("cross-entropy", twin)
    weight, bias = twins.stepped_by_bnp(twin, batch, loss, 0.1)[-1]
    assert np.allclose(np.column_stack([bias, weight]), wanted, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("mode", "equal"), [("frozen", True), ("batch", False)])
def test_prop_7_holds_without_gradients_through_the_statistics_alone(
    model, batch, mode, equal
) -> None:
    statistics = twins.Statistics.of(model, batch)
    start = statistics.fold(twins.layers_of(model))
    twin = twins.filled(build_model(SPEC + "&norm=none&activation=tanh").double(), start)
    loss = losses.resolve("cross-entropy", model)
    of_bnp = twins.stepped_by_bnp(twin, batch, loss, 0.1)
    of_bn = statistics.fold(twins.stepped_by_descent(model, batch, loss, 0.1, mode))
    gap = twins.farthest(of_bnp, of_bn, start)
    # Rounding of 1e-16, times condition numbers of σ.
    assert gap < 1e-11 if equal else gap > 1e-3


def test_a_step_of_descent_is_that_of_autograd(model, batch) -> None:
    wanted = []
    torch.nn.functional.cross_entropy(model.train()(*batch.inputs), batch.target).backward()
    for layer in twins.dense_layers(model):
        wanted.append((layer.weight - 0.1 * layer.weight.grad, layer.bias - 0.1 * layer.bias.grad))
    loss = losses.resolve("cross-entropy", model)
    found = twins.stepped_by_descent(model, batch, loss, 0.1, "batch")
    for pair, expected in zip(found, wanted, strict=True):
        for one, other in zip(pair, expected, strict=True):
            assert torch.allclose(one, other, rtol=1e-12, atol=1e-14)


def test_units_that_are_constant_can_be_left_out(batch) -> None:
    model = build_model(SPEC + NORM).double()
    with torch.no_grad():
        twins.dense_layers(model)[0].bias[2] = -1e3  # its ReLU is never active
        twins.dense_layers(model)[1].bias[:2] = -1e3
    kept = twins.Statistics.of(model, batch).varies()
    assert [int((~units).sum()) for units in kept] == [1, 2]
    smaller = build_model(SPEC.replace("7,6", "6,4") + NORM).double()
    twins.filled(smaller, twins.without_units(twins.layers_of(model), kept))
    ours, theirs = twins.outputs(model, batch), twins.outputs(smaller, batch)
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_the_first_layer_is_left_out_of_the_distance() -> None:
    def layers(*values):
        return [(torch.full((1, 1), v), torch.zeros(1)) for v in values]

    start, one, other = layers(0.0, 0.0, 0.0), layers(9.0, 1.0, 2.0), layers(1.0, 1.5, 2.2)
    assert twins.farthest(one, other, start) == pytest.approx(0.5)
