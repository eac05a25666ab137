"""ℓp normalisation against the text, written out in numpy."""

import numpy as np
import pytest
import torch
from torch import nn

from sample_models.normalisation import make

ORDERS = {"l1": 1, "l2": 2, "linf": np.inf}


def average_norm(column, order):
    """The average ℓp norm: ‖v‖_p of the m values, divided by what a vector of ones has."""
    return np.linalg.norm(column, order) / np.linalg.norm(np.ones_like(column), order)


def normalised(values, order, *, centred, eps):
    """Fix the mean and divide by the norm, unit by unit; pixels count as samples."""
    result = np.empty_like(values)
    for unit in range(values.shape[1]):
        column = values[:, unit].ravel()
        shifted = column - sum(column) / column.size
        scale = np.hypot(average_norm(shifted if centred else column, order), np.sqrt(eps))
        result[:, unit] = (shifted / scale).reshape(values[:, unit].shape)
    return result


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("shape", [(9, 4), (5, 4, 6), (5, 4, 3, 2)])
def test_both_readings_of_the_text(name, centred, shape):
    values = np.random.default_rng(3).normal(1.5, 2.0, shape)
    layer = make(name, 4, len(shape) - 2, centred=centred, eps=1e-3).double()
    expected = normalised(values, ORDERS[name], centred=centred, eps=1e-3)
    # 1e-13: sums of at most 30 float64 numbers.
    np.testing.assert_allclose(
        layer(torch.from_numpy(values)).detach().numpy(), expected, rtol=1e-13, atol=1e-14
    )


def test_the_uncentred_reading_is_the_default():
    values = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)) + 5
    outputs = make("l2", 3, 0)(values)
    assert torch.equal(outputs, make("l2", 3, 0, centred=False)(values))
    assert not torch.allclose(outputs, make("l2", 3, 0, centred=True)(values), atol=0.1)


def test_centred_l2_is_batch_normalisation():
    values = torch.randn(16, 3, 4, 4, generator=torch.Generator().manual_seed(0)).double() + 2
    batch = nn.BatchNorm2d(3).double()
    layer = make("l2", 3, 2, centred=True).double()
    assert torch.allclose(layer(values), batch(values), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("centred", [False, True])
def test_scaling_the_input_does_not_change_the_output_without_epsilon(name, centred):
    values = torch.randn(16, 3, generator=torch.Generator().manual_seed(0)).double() + 2
    layer = make(name, 3, 0, centred=centred, eps=0.0).double()
    assert torch.allclose(layer(1000 * values), layer(values), rtol=1e-12)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("centred", [False, True])
def test_the_mean_is_fixed_in_either_reading(name, centred):
    values = torch.randn(16, 3, generator=torch.Generator().manual_seed(0)).double() + 2
    outputs = make(name, 3, 0, centred=centred).double()(values)
    assert outputs.mean(0).abs().max() < 1e-15


@pytest.mark.parametrize("name", ORDERS)
def test_scale_and_shift_stand_behind_the_normalisation_or_are_absent(name):
    values = torch.randn(16, 3, 2, 2, dtype=torch.float64)
    plain = make(name, 3, 2, affine=False).double()
    layer = make(name, 3, 2).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, -2.0, 3.0]))
        layer.bias.copy_(torch.tensor([4.0, 5.0, -6.0]))
    scale, shift = layer.weight[:, None, None], layer.bias[:, None, None]
    assert not list(plain.parameters())
    assert torch.allclose(layer(values), plain(values) * scale + shift, rtol=1e-13)
