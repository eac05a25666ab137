"""What lp and renorm layers share: modes, fixed statistics, derivatives, stacking."""

import pytest
import torch
from torch.func import functional_call, vmap

from landscape_cli.errors import AdapterError
from landscape_cli.norm_layers import FrozenStatistics, batch_layers
from sample_models.normalisation import make

OWN = [
    ("l1", {}),
    ("l2", {}),
    ("linf", {}),
    ("l1", {"centred": True}),
    ("l2", {"centred": True}),
    ("linf", {"centred": True}),
    ("renorm", {}),
    ("renorm", {"warmup": 0, "r_end": 0, "d_end": 0, "r_max": 1.5, "d_max": 0.5}),
]
every_own = pytest.mark.parametrize(("name", "options"), OWN)


def layer_and_input(name, options, *, shape=(7, 3, 2, 2), dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    layer = make(name, shape[1], len(shape) - 2, **options).to(dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(shape[1], generator=generator))
        layer.bias.copy_(torch.randn(shape[1], generator=generator))
    return layer, (2 * torch.randn(shape, generator=generator) + 0.7).to(dtype)


@every_own
def test_fixed_statistics_of_the_same_input_give_the_batch_form(name, options):
    layer, values = layer_and_input(name, options)
    layer.track_running_stats = False
    expected = layer(values)
    layer.fixed_statistics = layer.batch_statistics(values)
    assert torch.equal(layer(values), expected)


@every_own
def test_fixed_statistics_leave_every_buffer_alone_and_win_in_both_modes(name, options):
    layer, values = layer_and_input(name, options)
    before = {key: buffer.clone() for key, buffer in layer.named_buffers()}
    layer.fixed_statistics = layer.batch_statistics(2 * values + 1)
    trained = layer.train()(values)
    assert torch.equal(layer.eval()(values), trained)
    assert all(torch.equal(buffer, before[key]) for key, buffer in layer.named_buffers())


@every_own
def test_fixed_statistics_are_constants_in_the_gradient(name, options):
    layer, values = layer_and_input(name, options, shape=(5, 3))
    values.requires_grad_()
    layer.fixed_statistics = layer.batch_statistics(values)
    jacobian = torch.autograd.functional.jacobian(lambda x: layer(x).sum(0), values)
    across_features = jacobian * (1 - torch.eye(3, dtype=values.dtype)[:, None, :])
    assert across_features.abs().max() == 0
    per_sample = jacobian.diagonal(dim1=0, dim2=2)
    assert torch.allclose(per_sample, per_sample[:1].expand_as(per_sample), rtol=1e-12)


@every_own
def test_evaluation_uses_what_training_has_gathered(name, options):
    layer, values = layer_and_input(name, options)
    statistics = layer.batch_statistics(values)
    start = [buffer.clone() for buffer in layer.running_statistics()]
    layer(values)
    share = layer.momentum
    for running, first, seen in zip(layer.running_statistics(), start, statistics, strict=True):
        assert torch.allclose(running, (1 - share) * first + share * seen, rtol=1e-14)
    assert int(layer.num_batches_tracked) == 1
    evaluated = layer.eval()(values)
    layer.fixed_statistics = tuple(buffer.clone() for buffer in layer.running_statistics())
    assert torch.equal(evaluated, layer(values))
    assert int(layer.num_batches_tracked) == 1


@every_own
def test_untracked_training_normalises_alike_and_changes_no_buffer(name, options):
    layer, values = layer_and_input(name, options)
    before = {key: buffer.clone() for key, buffer in layer.named_buffers()}
    layer.track_running_stats = False
    untracked = layer(values)
    assert all(torch.equal(buffer, before[key]) for key, buffer in layer.named_buffers())
    layer.track_running_stats = True
    assert torch.equal(layer(values), untracked)


@every_own
def test_first_and_second_derivatives_are_those_of_finite_differences(name, options):
    layer, values = layer_and_input(name, options, shape=(5, 2))
    layer.track_running_stats = False
    values.requires_grad_()
    names = ("weight", "bias")
    parameters = tuple(getattr(layer, n).detach().requires_grad_() for n in names)

    def outputs(inputs, *tensors):
        return functional_call(layer, dict(zip(names, tensors, strict=True)), (inputs,))

    if name == "renorm":
        # r and d are constants in the gradient: differentiate with the limits shut.
        layer.r_max, layer.d_max = 1.0, 0.0
    assert torch.autograd.gradcheck(outputs, (values, *parameters))
    assert torch.autograd.gradgradcheck(outputs, (values, *parameters))


@every_own
def test_points_can_be_stacked(name, options):
    layer, values = layer_and_input(name, options)
    layer.track_running_stats = False
    weights = torch.randn(4, 3, dtype=values.dtype, generator=torch.Generator().manual_seed(0))
    scales = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=values.dtype)

    def outputs(weight, scale):
        return functional_call(layer, {"weight": weight}, (scale * values,))

    expected = torch.stack([outputs(w, s) for w, s in zip(weights, scales, strict=True)])
    assert torch.allclose(vmap(outputs)(weights, scales), expected, rtol=1e-13)


@every_own
def test_few_digits_do_not_reach_the_statistics(name, options):
    layer, values = layer_and_input(name, options)
    rounded = values.to(torch.bfloat16)
    reduced = layer.to(torch.bfloat16).train()
    expected = reduced.batch_statistics(rounded.double())
    for seen, exact in zip(reduced.batch_statistics(rounded), expected, strict=True):
        assert seen.dtype == torch.float32
        assert torch.allclose(seen.double(), exact, rtol=1e-5, atol=1e-6)
    assert reduced(rounded).dtype == torch.bfloat16


@every_own
def test_a_feature_that_never_changes_stays_finite_and_differentiable(name, options):
    layer, values = layer_and_input(name, options)
    values[:, 0] = 0
    values.requires_grad_()
    (gradient,) = torch.autograd.grad(layer(values).square().sum(), values, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), values)
    assert gradient.isfinite().all()
    assert second.isfinite().all()


@every_own
def test_the_probe_knows_the_layer_and_can_freeze_it(name, options):
    layer, values = layer_and_input(name, options)
    model = torch.nn.Sequential(layer)
    assert list(batch_layers(model)) == ["0"]
    layer.track_running_stats = False
    frozen = FrozenStatistics(model)
    with frozen.record():
        expected = model(values)
    with frozen.replay(0):
        assert torch.equal(model(values), expected)
        assert layer.fixed_statistics is not None
    assert layer.fixed_statistics is None


def test_a_negative_epsilon_is_refused():
    with pytest.raises(AdapterError, match="'eps' is too small"):
        make("l2", 3, 0, eps=-1.0)
