"""The adapter: every model and data set by its spec."""

import doctest
import importlib
from importlib.metadata import entry_points

import pytest
import torch
from torch.func import functional_call, vmap
from torch.nn import functional

from landscape_cli.errors import AdapterError
from landscape_cli.specs import ComponentSpec
from sample_models.adapter import build_data, build_model
from sample_models.normalisation import NAMES

IMAGES = (8, 1, 8, 8)
MODELS = {
    "vgg": ({"width": 2, "in_channels": 1, "image_size": 8}, IMAGES),
    "deep-linear": ({"depth": 3, "width": 4}, (8, 4)),
    "mlp": ({"hidden": "8,8", "in_features": 4}, (8, 4)),
    "cnn": ({"channels": "4,8,4", "in_channels": 1, "image_size": 8, "hidden": 8}, IMAGES),
    "resnet": ({"depth": 8, "width": 4, "in_channels": 1}, IMAGES),
    "resnet20": ({"width": 4, "in_channels": 1}, IMAGES),
    "resnet110": ({"width": 1, "in_channels": 1, "norm_position": "before"}, IMAGES),
    "resnet18": ({"width": 4, "in_channels": 1}, IMAGES),
    "gpt": ({"layers": 1, "heads": 2, "width": 8, "context": 8, "vocabulary": 11}, (8, 8)),
    "least-squares": ({"in_features": 4}, (8, 4)),
}
DATA = ("gaussian", "least-squares", "images", "tokens", "cifar10", "cifar100", "mnist")
every_model = pytest.mark.parametrize("target", MODELS)


def model_and_input(target, **options):
    given, shape = MODELS[target]
    model = build_model(target, **{**given, **options})
    if target == "gpt":
        return model, torch.randint(11, shape)
    return model, torch.randn(shape)


def combinations():
    for target in MODELS:
        for norm in NAMES:
            single_unit = ("none", "batch", "l1", "l2", "linf")
            if target != "resnet110" and (target != "least-squares" or norm in single_unit):
                yield target, norm


@pytest.mark.parametrize(("target", "norm"), list(combinations()))
def test_every_model_takes_every_norm_and_all_its_weights_train(target, norm):
    model, inputs = model_and_input(target, norm=norm, seed=0)
    model(inputs).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("target", ["vgg", "mlp", "cnn", "resnet", "gpt"])
def test_positions_of_the_norm_are_different_networks(target):
    outputs = []
    for position in ("before", "after"):
        torch.manual_seed(1)
        model, inputs = model_and_input(target, norm="l1", norm_position=position, seed=0)
        outputs.append(model(inputs))
    assert not torch.allclose(*outputs, atol=1e-3)


@every_model
def test_a_seed_draws_the_same_weights_and_leaves_the_callers_state_alone(target):
    before = torch.get_rng_state()
    first = build_model(target, **MODELS[target][0], seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    second = build_model(target, **MODELS[target][0], seed=3).state_dict()
    assert all(torch.equal(second[name], tensor) for name, tensor in first.items())
    other = build_model(target, **MODELS[target][0], seed=4).state_dict()
    assert any(not torch.equal(other[name], tensor) for name, tensor in first.items())


def test_the_callers_state_comes_back_from_a_failure_as_well():
    before = torch.get_rng_state()
    with pytest.raises(AdapterError):
        build_model("resnet", depth=21, seed=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_seed_weights_come_from_torchs_generator():
    torch.manual_seed(5)
    first = build_model("mlp").hidden[0].layer.weight
    second = build_model("mlp").hidden[0].layer.weight
    torch.manual_seed(5)
    assert torch.equal(build_model("mlp").hidden[0].layer.weight, first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("norm", ["batch", "noisy", "l2", "linf", "group", "renorm"])
def test_a_seed_draws_the_same_weights_under_every_norm(norm):
    plain = build_model("vgg", width=2, seed=0).state_dict()
    normalised = build_model("vgg", width=2, seed=0, norm=norm).state_dict()
    assert all(torch.equal(normalised[name], tensor) for name, tensor in plain.items())


@pytest.mark.parametrize("norm", [name for name in NAMES if name != "noisy"])
@pytest.mark.parametrize("target", ["vgg", "mlp", "deep-linear", "resnet", "gpt"])
def test_points_of_every_network_can_be_stacked(target, norm):
    options = {"attention": "plain"} if target == "gpt" else {}
    model, inputs = model_and_input(target, norm=norm, seed=0, **options)
    model = model.double()
    inputs = inputs if target == "gpt" else inputs.double()
    for module in model.modules():
        if hasattr(module, "track_running_stats"):
            module.track_running_stats = False
    base = dict(model.named_parameters())
    points = {name: torch.stack([p, 1.1 * p, 0.8 * p]).detach() for name, p in base.items()}
    stacked = vmap(lambda tensors: functional_call(model, tensors, (inputs,)))(points)
    for k in range(3):
        alone = functional_call(model, {name: p[k] for name, p in points.items()}, (inputs,))
        assert torch.allclose(stacked[k], alone, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("norm", NAMES)
def test_a_hessian_vector_product_goes_through(norm):
    model, inputs = model_and_input("cnn", norm=norm, seed=0, activation="tanh")
    model, inputs = model.double(), inputs.double()
    parameters = list(model.parameters())
    loss = functional.cross_entropy(model(inputs), torch.arange(8))
    first = torch.autograd.grad(loss, parameters, create_graph=True)
    product = torch.autograd.grad(sum(g.square().sum() for g in first), parameters)
    assert all(part.isfinite().all() for part in product)
    assert any(part.abs().max() > 0 for part in product)


def test_options_of_the_norm_are_given_with_a_prefix():
    model = build_model("vgg", width=8, norm="group", norm_group_size=2)
    assert model.features[0].norm.num_groups == 4
    spec = ComponentSpec.parse("sample:mlp?norm=batch&norm_eps=0.5&hidden=7,9", "model")
    model = build_model(spec.target, **spec.options)
    assert model.hidden[0].norm.eps == 0.5
    assert model.output.in_features == 9


def test_options_of_another_norm_are_refused_with_those_of_this_one():
    with pytest.raises(AdapterError, match="has no option 'norm_groups'") as caught:
        build_model("vgg", norm="batch", norm_groups=3)
    assert {"norm_eps", "norm_momentum", "norm_affine"} <= set(caught.value.hint.split(", "))


def test_the_papers_positions_of_the_norm_are_the_defaults():
    def order(target):
        model, _ = model_and_input(target, norm="batch")
        block = model.features[0] if target in ("vgg", "cnn") else model.hidden[0]
        return [name for name, _ in block.named_children()]

    assert order("vgg").index("norm") < order("vgg").index("activation")
    for target in ("mlp", "cnn"):
        assert order(target).index("norm") > order(target).index("activation")


def test_names_are_spelled_with_either_dash():
    assert type(build_model("deep_linear")) is type(build_model("deep-linear"))
    assert len(build_data("least_squares")) == len(build_data("least-squares"))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"widht": 8}, "the sample model 'vgg' has no option 'widht'"),
        ({"width": "wide"}, "the option 'width' of the sample model 'vgg' cannot be 'wide'"),
        ({"depth": 12}, "the option 'depth' of the sample model 'vgg' cannot be 12"),
        ({"width": 0}, "the option 'width' is too small"),
        ({"norm": "btch"}, "no normalisation is named 'btch'"),
        ({"norm": 3}, "the option 'norm' of the sample model 'vgg' cannot be 3"),
        ({"activation": "rleu"}, "the option 'activation' of the sample model 'vgg' cannot be"),
        ({"init": "golrot"}, "the option 'init' of the sample model 'vgg' cannot be"),
        ({"norm_position": "under"}, "the option 'norm_position' of the sample model 'vgg'"),
        ({"seed": -1}, "the option 'seed' is too small"),
        ({"seed": 2**64}, "the option 'seed' is too large"),
        ({"style": "x"}, "the sample model 'vgg' has no option 'style'"),
        ({"norm_options": {}}, "the sample model 'vgg' has no option 'norm_options'"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options, what):
    with pytest.raises(AdapterError) as caught:
        build_model("vgg", **options)
    assert caught.value.what.startswith(what)
    assert caught.value.seen
    assert caught.value.hint


@pytest.mark.parametrize("target", ["deep-linear", "least-squares"])
@pytest.mark.parametrize("option", [{"activation": "relu"}, {"norm_position": "after"}])
def test_linear_networks_take_no_activation(target, option):
    with pytest.raises(AdapterError, match="has no option"):
        build_model(target, **option)


def test_a_depth_that_the_name_has_fixed_is_no_option():
    with pytest.raises(AdapterError, match="'resnet20' has no option 'depth'"):
        build_model("resnet20", depth=32)


def test_unknown_targets_list_the_known_ones():
    with pytest.raises(AdapterError) as caught:
        build_model("vgg16")
    assert (caught.value.what, caught.value.seen) == ("no sample model is named 'vgg16'", "vgg16")
    assert set(caught.value.hint.split(", ")) == set(MODELS)
    with pytest.raises(AdapterError) as caught:
        build_data("cifar")
    assert caught.value.what == "no sample data set is named 'cifar'"
    assert set(DATA) <= set(caught.value.hint.split(", "))


def test_the_adapters_are_installed_under_their_names():
    for group, function in [("models", build_model), ("data", build_data)]:
        (entry,) = entry_points(group=f"landscape_cli.{group}", name="sample")
        assert entry.load() is function


@pytest.mark.parametrize("module", ["sample_models.adapter", "sample_models.normalisation.factory"])
def test_examples_in_docstrings_run(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0
