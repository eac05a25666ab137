"""Descent on least squares against autograd, and against what is proved of it."""

import pytest
import torch

from landscape_cli.errors import SpecError
from sample_models.adapter import build_data, build_model
from sample_models.optim import Moments, descend, descend_normalised, effective_step_size

FEATURES = 6


def problem(condition=20.0, seed=0, noise=0.3):
    data = build_data(
        "least-squares",
        samples=80,
        features=FEATURES,
        condition=condition,
        noise=noise,
        seed=seed,
        dtype="float64",
    )
    return data.inputs, data.targets


@pytest.fixture
def moments():
    return Moments.of(*problem())


def start(seed=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(FEATURES, generator=generator, dtype=torch.float64)


def autograd_path(norm, rate, scale_rate, steps):
    """Losses and weights of gradient descent on the network itself."""
    x, y = problem()
    model = build_model("least-squares", in_features=FEATURES, norm=norm).double().train()
    with torch.no_grad():
        model.layer.weight.copy_(start().unsqueeze(0))
    losses = []
    for step in range(steps + 1):
        loss = 0.5 * (model(x) - y).square().mean()
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        if step == steps:
            return losses, model
        with torch.no_grad():
            for (name, p), gradient in zip(model.named_parameters(), gradients, strict=True):
                p.sub_((scale_rate if name == "scale" else rate) * gradient)
    raise AssertionError


def test_plain_descent_is_autograd_on_the_linear_model(moments):
    losses, model = autograd_path("none", 0.3, 0.0, 15)
    found = descend(moments, start(), [0.3], 15)
    # Float64, 15 steps: rounding, and H is symmetric to rounding only.
    assert found.losses[:, 0].tolist() == pytest.approx(losses, rel=1e-11)
    assert torch.allclose(found.weights, model.layer.weight, rtol=1e-10)


@pytest.mark.parametrize(("rate", "scale_rate"), [(0.05, 1.0), (2.0, 0.5), (50.0, 0.1)])
def test_normalised_descent_is_autograd_on_the_batchnorm_model(moments, rate, scale_rate):
    losses, model = autograd_path("batch", rate, scale_rate, 15)
    found = descend_normalised(moments, start(), [rate], 15, scale_step_size=scale_rate)
    assert found.losses[:, 0].tolist() == pytest.approx(losses, rel=1e-10)
    assert torch.allclose(found.weights, model.layer.weight, rtol=1e-9)
    assert float(found.scales) == pytest.approx(float(model.scale.detach()), rel=1e-10)


def test_the_moments_give_loss_minimum_and_minimiser_of_the_data(moments):
    x, y = problem()
    fitted = torch.linalg.lstsq(x, y).solution
    assert torch.allclose(moments.solution.unsqueeze(1), fitted, rtol=1e-9)
    residual = 0.5 * float((y - x @ fitted).square().mean())
    assert moments.minimum == pytest.approx(residual, rel=1e-10)


def test_plain_descent_converges_below_two_over_the_largest_eigenvalue_and_not_above(moments):
    rates = moments.largest_step * torch.tensor([0.5, 0.98, 1.02, 2.0], dtype=torch.float64)
    excess = descend(moments, start(), rates, 3000).losses - moments.minimum
    assert (excess[-1, :2].abs() < 1e-10).all()
    assert not (excess[-1, 2:] < excess[0, 2:]).any()


def test_plain_descent_contracts_at_the_rate_of_its_spectrum(moments):
    rate = 0.7 * moments.largest_step
    weights = [descend(moments, start(), [rate], steps).weights[0] for steps in (200, 201)]
    errors = [float((w - moments.solution).norm()) for w in weights]
    spectrum = torch.linalg.eigvalsh(moments.H)
    assert errors[1] / errors[0] == pytest.approx(
        float((1 - rate * spectrum).abs().max()), rel=1e-6
    )


@pytest.mark.parametrize("scale_rate", [0.1, 0.5, 1.0])
def test_normalised_descent_converges_for_step_sizes_over_five_decades(moments, scale_rate):
    rates = torch.logspace(-2, 3, 11, dtype=torch.float64)
    found = descend_normalised(moments, start(), rates, 6000, scale_step_size=scale_rate)
    excess = (found.losses[-1] - moments.minimum) / (found.losses[0] - moments.minimum)
    assert excess.max() < 1e-3
    assert excess.min() > -1e-12
    # Plain descent diverges for all but the smallest of these.
    assert int((rates < moments.largest_step).sum()) < 6


def test_normalised_descent_needs_a_scale_step_size_below_two(moments):
    rates = [0.1]
    found = descend_normalised(moments, start(), rates, 200, scale_step_size=2.5)
    assert float(found.losses[-1]) > 1e6 * float(found.losses[0])


def test_the_normalised_hessian_is_that_of_the_loss_at_its_minimum(moments):
    """Where a is at its best, the loss is flat along w and H*/s² across it (w = s·u)."""
    s = 1.7

    def loss(w):
        return 0.5 * (moments.c - (w @ moments.g) ** 2 / (w @ moments.H @ w))

    found = torch.autograd.functional.hessian(loss, s * moments.solution)
    assert torch.allclose(found, moments.normalised_hessian / s**2, rtol=1e-9, atol=1e-12)


def test_the_condition_number_of_the_normalised_hessian_is_not_above_the_plain_one():
    for seed in range(10):
        moments = Moments.of(*problem(condition=200.0, seed=seed))
        spectrum = torch.linalg.eigvalsh(moments.normalised_hessian)
        plain = torch.linalg.eigvalsh(moments.H)
        assert abs(float(spectrum[0])) < 1e-12 * float(spectrum[-1])
        assert spectrum[-1] / spectrum[1] <= plain[-1] / plain[0] * (1 + 1e-9)


def test_normalised_descent_contracts_at_the_rate_of_its_effective_step_size(moments):
    rates = torch.tensor([0.05, 1.0], dtype=torch.float64)
    ends = [descend_normalised(moments, start(), rates, steps) for steps in (1500, 1501)]
    effective = effective_step_size(moments, ends[0], rates)
    spectrum = torch.linalg.eigvalsh(moments.normalised_hessian)[1:]
    unit = moments.solution / moments.solution.norm()
    for index in range(len(rates)):
        errors = []
        for end in ends:
            w = end.weights[index] / end.weights[index].norm()
            errors.append(float((w - unit * (w @ unit)).norm()))
        if errors[0] < 1e-11:
            continue
        wanted = float((1 - effective[index] * spectrum).abs().max())
        assert errors[1] / errors[0] == pytest.approx(wanted, rel=1e-4)
    assert (effective * spectrum[-1] < 2).all()


def test_descents_side_by_side_are_those_one_by_one(moments):
    rates = torch.tensor([0.1, 1.0, 7.0], dtype=torch.float64)
    together = descend_normalised(moments, start(), rates, 30)
    for index in range(3):
        alone = descend_normalised(moments, start(), rates[index : index + 1], 30)
        assert torch.allclose(together.losses[:, index], alone.losses[:, 0], rtol=1e-12)


def test_what_the_analysis_does_not_cover_is_refused(moments):
    x, y = problem()
    with pytest.raises(SpecError, match="not centred"):
        Moments.of(x + 1, y)
    with pytest.raises(SpecError, match="do not span"):
        Moments.of(torch.cat([x, x[:, :1]], 1), y)
    with pytest.raises(SpecError, match="are zero"):
        descend_normalised(moments, torch.zeros(FEATURES), [1.0], 1)
    with pytest.raises(SpecError, match="no effective step size"):
        effective_step_size(moments, descend(moments, start(), [1.0], 1), [1.0])
