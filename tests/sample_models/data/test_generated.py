"""Generated data: what is promised of it, and its seeds."""

import math

import pytest
import torch

from landscape_cli.errors import AdapterError
from sample_models.data.gaussian import make_gaussian
from sample_models.data.images import make_images
from sample_models.data.least_squares import make_least_squares
from sample_models.data.tokens import make_tokens

MAKERS = [make_gaussian, make_least_squares, make_images, make_tokens]


@pytest.mark.parametrize("make", MAKERS)
def test_a_seed_decides_the_data_and_the_callers_state_is_left_alone(make):
    before = torch.get_rng_state()
    first, second, other = make(40, seed=1), make(40, seed=1), make(40, seed=2)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.inputs, second.inputs)
    assert torch.equal(first.targets, second.targets)
    assert not torch.equal(first.inputs, other.inputs)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("options", [{"samples": 0}, {"seed": -1}])
def test_sizes_and_seeds_that_cannot_be_are_refused(make, options):
    with pytest.raises(AdapterError, match="is too small"):
        make(**options)


def test_gaussian_data_has_the_published_size_and_is_linear():
    data = make_gaussian(dtype="float64")
    assert data.inputs.shape == data.targets.shape == (1000, 10)
    matrix = torch.linalg.lstsq(data.inputs, data.targets).solution
    residual = data.inputs @ matrix - data.targets
    assert residual.abs().max() < 1e-12
    # A has 100 standard normal entries: five standard errors.
    assert abs(float(matrix.mean())) < 0.5
    assert abs(float(matrix.std()) - 1) < 5 / math.sqrt(200)
    assert abs(float(data.inputs.std()) - 1) < 5 / math.sqrt(20_000)


def test_types_are_the_ones_asked_for_and_the_values_the_same():
    single, double = make_gaussian(20), make_gaussian(20, dtype="float64")
    assert single.inputs.dtype == torch.float32
    assert torch.equal(single.targets, double.targets.float())


def test_least_squares_data_has_the_second_moment_it_was_asked_for():
    data = make_least_squares(300, features=6, condition=1000.0, dtype="float64")
    moment = data.inputs.T @ data.inputs / 300
    expected = torch.logspace(-3, 0, 6, dtype=torch.float64)
    assert torch.allclose(torch.linalg.eigvalsh(moment), expected, rtol=1e-10)
    assert data.inputs.mean(0).abs().max() < 1e-14
    assert (moment - moment.diag().diag()).abs().max() > 1e-3
    assert data.targets.shape == (300, 1)


def test_least_squares_targets_are_linear_but_for_the_noise():
    for noise in (0.0, 0.5):
        data = make_least_squares(4000, features=5, noise=noise, dtype="float64")
        solution = torch.linalg.lstsq(data.inputs, data.targets).solution
        left = data.targets - data.inputs @ solution
        assert float(left.std()) == pytest.approx(noise, rel=0.06, abs=1e-12)


def test_one_feature_is_enough_and_too_few_samples_are_refused():
    assert make_least_squares(5, features=1).inputs.shape == (5, 1)
    with pytest.raises(AdapterError, match="more samples than features") as caught:
        make_least_squares(6, features=6)
    assert caught.value.hint == "samples=7 or more"


def test_images_are_their_classes_image_and_noise():
    data = make_images(200, classes=4, channels=2, image_size=8, noise=0.5)
    assert data.inputs.shape == (200, 2, 8, 8)
    assert data.inputs.dtype == torch.float32
    assert data.targets.bincount().tolist() == [50] * 4
    means = torch.stack([data.inputs[data.targets == k].mean(0) for k in range(4)])
    # A mean of 50 samples still carries noise of variance 0.25/50.
    assert torch.allclose(means.square().mean((1, 2, 3)), torch.tensor(1.005), atol=0.05)
    left = data.inputs - means[data.targets]
    assert float(left.std()) == pytest.approx(0.5, rel=0.03)


def test_images_without_noise_are_as_many_as_classes():
    data = make_images(30, classes=3, image_size=5, noise=0.0)
    assert len(data.inputs.unique(dim=0)) == 3


def test_tokens_are_followed_by_one_of_few():
    data = make_tokens(200, context=30, vocabulary=12, successors=3)
    assert data.inputs.shape == data.targets.shape == (200, 30)
    assert torch.equal(data.inputs[:, 1:], data.targets[:, :-1])
    counts = torch.zeros(12, 12, dtype=torch.long)
    counts.index_put_((data.inputs.flatten(), data.targets.flatten()), torch.tensor(1), True)
    assert ((counts > 0).sum(1) == 3).all()
    shares = counts / counts.sum(1, keepdim=True)
    assert (shares[counts > 0] - 1 / 3).abs().max() < 0.15
