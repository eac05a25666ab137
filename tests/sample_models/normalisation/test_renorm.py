"""Batch renormalisation against Ioffe's Algorithm 1 in numpy, and its limits."""

import numpy as np
import pytest
import torch
from torch import nn

from landscape_cli.errors import AdapterError
from sample_models.normalisation import make

OPEN = {"warmup": 0, "r_end": 0, "d_end": 0}


def batches(count, *, shape=(12, 3), seed=0):
    generator = np.random.default_rng(seed)
    return [generator.normal(1 + 0.3 * k, 2.0, shape) for k in range(count)]


def test_three_steps_of_algorithm_1():
    mean, deviation = np.zeros(3), np.ones(3)
    layer = make("renorm", 3, 0, r_max=1.7, d_max=0.4, momentum=0.2, **OPEN).double()
    for values in batches(3):
        batch_mean, batch_deviation = values.mean(0), np.sqrt(values.var(0) + 1e-5)
        r = np.clip(batch_deviation / deviation, 1 / 1.7, 1.7)
        d = np.clip((batch_mean - mean) / deviation, -0.4, 0.4)
        expected = (values - batch_mean) / batch_deviation * r + d
        outputs = layer(torch.from_numpy(values)).detach().numpy()
        np.testing.assert_allclose(outputs, expected, rtol=1e-12)
        mean = mean + 0.2 * (batch_mean - mean)
        deviation = deviation + 0.2 * (batch_deviation - deviation)
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, rtol=1e-13)
    np.testing.assert_allclose(layer.running_deviation.numpy(), deviation, rtol=1e-13)


def test_shut_limits_give_batch_normalisation_and_its_gradient():
    values = torch.from_numpy(batches(1, shape=(6, 3, 2, 2))[0]).requires_grad_()
    layer = make("renorm", 3, 2, r_max=1.0, d_max=0.0, **OPEN).double()
    reference = nn.BatchNorm2d(3).double()
    weights = torch.randn(values.shape, dtype=torch.float64)
    assert torch.allclose(layer(values), reference(values), rtol=1e-12, atol=1e-13)
    found = torch.autograd.grad((layer(values) * weights).sum(), values)[0]
    expected = torch.autograd.grad((reference(values) * weights).sum(), values)[0]
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_warmup_is_batch_normalisation_by_default():
    values = torch.from_numpy(batches(1)[0])
    assert torch.allclose(
        make("renorm", 3, 0).double()(values), nn.BatchNorm1d(3).double()(values), rtol=1e-12
    )


def test_inside_wide_limits_training_gives_what_evaluation_gives():
    layer = make("renorm", 3, 0, r_max=1e6, d_max=1e6, **OPEN).double()
    for values in batches(4):
        layer(torch.from_numpy(values))
    layer.track_running_stats = False
    fresh = torch.from_numpy(batches(1, seed=9)[0])
    trained = layer(fresh)
    assert torch.allclose(layer.eval()(fresh), trained, rtol=1e-12, atol=1e-13)


def test_corrections_are_constants_of_the_gradient():
    values = torch.from_numpy(batches(1)[0]).requires_grad_()
    layer = make("renorm", 3, 0, r_max=3.0, d_max=5.0, **OPEN).double()
    layer.track_running_stats = False
    mean, deviation = (statistic.detach() for statistic in layer.batch_statistics(values))
    r = deviation.clamp(1 / 3, 3)  # the running deviation is 1 and the running mean 0
    d = mean.clamp(-5, 5)
    variance = values.var(0, correction=0)
    expected = (values - values.mean(0)) / (variance + 1e-5).sqrt() * r + d
    weights = torch.randn(values.shape, dtype=torch.float64)
    found = torch.autograd.grad((layer(values) * weights).sum(), values)[0]
    wanted = torch.autograd.grad((expected * weights).sum(), values)[0]
    assert torch.allclose(found, wanted, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("step", "r_max", "d_max"),
    [
        (0, 1.0, 0.0),
        (4999, 1.0, 0.0),
        (25000, 1 + 2 * 20001 / 35001, 5.0),
        (40000, 3.0, 5.0),
        (10**6, 3.0, 5.0),
    ],
)
def test_limits_follow_the_published_schedule(step, r_max, d_max):
    layer = make("renorm", 3, 0).double()
    layer.num_batches_tracked.fill_(step)
    found = [float(limit) for limit in layer.limits()]
    assert found == pytest.approx([r_max, d_max], rel=1e-12)


def test_limits_without_a_schedule_are_open_from_the_start():
    layer = make("renorm", 3, 0, **OPEN)
    assert [float(limit) for limit in layer.limits()] == [3.0, 5.0]


@pytest.mark.parametrize("options", [{"r_max": 0.5}, {"d_max": -1.0}, {"warmup": -1}])
def test_impossible_limits_are_refused(options):
    with pytest.raises(AdapterError, match="is too small"):
        make("renorm", 3, 0, **options)
