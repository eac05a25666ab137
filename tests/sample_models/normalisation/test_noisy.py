"""Algorithm 1: what the noise does to a batch-normalised activation."""

import pytest
import torch

from landscape_cli.errors import AdapterError
from sample_models.normalisation import make
from sample_models.normalisation.noisy import ShiftingNoise


def draws(count, value, **constants):
    """`count` steps with one sample of one unit that is `value` throughout."""
    torch.manual_seed(0)
    activations = torch.full((1, count), value, dtype=torch.float64)
    return ShiftingNoise(**constants)(activations)[0]


def test_moments_over_steps_are_those_of_the_constants():
    # A column is one feature at one step: each has its own μ and σ.
    value, count = 2.0, 400_000
    outputs = draws(count, value)
    mean_stretch = (1 + 1.25) / 2
    variance = value**2 * (0.25**2 / 12 + 0.1**2) + (2 * 0.5) ** 2 / 12 + (2 * 0.1) ** 2 / 12
    # Five standard errors of a mean, and of a variance, of that many draws.
    assert abs(outputs.mean() - mean_stretch * value) < 5 * (variance / count) ** 0.5
    assert abs(outputs.var() - variance) < 5 * variance * (2 / count) ** 0.5


def test_samples_of_a_step_share_the_distribution_of_their_unit():
    torch.manual_seed(0)
    samples, units = 20_000, 50
    ones = torch.ones(samples, units, dtype=torch.float64)
    outputs = ShiftingNoise()(ones)
    within = outputs.var(0)
    expected = 0.1**2 + 0.2**2 / 12
    assert (within - expected).abs().max() < 6 * expected * (2 / samples) ** 0.5
    between = 0.5**2 / 3 + 0.25**2 / 12
    # Five standard errors of a variance of 50 draws, which a uniform's kurtosis keeps below.
    assert abs(outputs.mean(0).var() - between) < 5 * between * (2 / units) ** 0.5


def test_pixels_are_samples_and_channels_are_units():
    torch.manual_seed(0)
    images = torch.zeros(40, 3, 25, 20, dtype=torch.float64)
    outputs = ShiftingNoise(r_mu=0.0)(images)
    assert torch.equal(outputs, outputs[:1, :, :1, :1].expand_as(outputs))
    assert outputs[0, :, 0, 0].unique().numel() == 3
    spread = ShiftingNoise(n_mu=0.0)(images)
    assert spread.unique().numel() == images.numel()


def test_shifts_stay_in_their_range_and_reach_its_ends():
    shifts = draws(100_000, 0.0)
    assert 0.59 < shifts.max() < 0.6
    assert -0.6 < shifts.min() < -0.59


def test_the_noise_stands_behind_torch_batch_normalisation():
    torch.manual_seed(0)
    values = torch.randn(30, 4, dtype=torch.float64) * 3 + 1
    layer = make("noisy", 4, 0, n_mu=0.0, n_sigma=1.0, r_mu=0.0, r_sigma=0.0).double()
    reference = torch.nn.BatchNorm1d(4).double()
    assert torch.equal(layer(values), reference(values))
    assert torch.equal(layer[0].running_var, reference.running_var)


def test_evaluation_has_no_noise():
    values = torch.randn(30, 4, 2, 2, generator=torch.Generator().manual_seed(0))
    layer = make("noisy", 4, 2)
    layer(values)
    layer.eval()
    assert torch.equal(layer(values), layer[0](values))


def test_a_seed_fixes_the_noise_and_steps_differ():
    values = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    layer = make("noisy", 4, 0)
    torch.manual_seed(5)
    first, second = layer(values), layer(values)
    torch.manual_seed(5)
    assert torch.equal(layer(values), first)
    assert not torch.equal(first, second)


def test_the_noise_is_a_constant_of_the_gradient():
    layer = ShiftingNoise()
    values = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)

    def outputs(inputs):
        torch.manual_seed(2)
        return layer(inputs)

    assert torch.autograd.gradcheck(outputs, (values,))
    assert torch.autograd.gradgradcheck(outputs, (values,))


def test_a_stretch_below_one_is_refused():
    with pytest.raises(AdapterError, match="'n_sigma' is too small"):
        make("noisy", 4, 0, n_sigma=0.9)


def test_the_noise_comes_alone_where_nothing_is_normalised() -> None:
    layer = make("noisy", 4, 0, normalise=False, n_mu=0.0, n_sigma=1.0, r_mu=0.0, r_sigma=0.0)
    values = 3 + 2 * torch.randn(16, 4)
    assert not list(layer.parameters())
    torch.testing.assert_close(layer(values), values, rtol=0, atol=0)
