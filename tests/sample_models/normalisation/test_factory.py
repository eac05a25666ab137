"""Every normalisation by its name."""

import pytest
import torch

from landscape_cli.errors import AdapterError
from sample_models.normalisation import NAMES, accepted_norm_options, make


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(6, 8), (6, 8, 5), (6, 8, 3, 3)])
def test_shape_and_type_of_the_input_are_kept(name, shape):
    for dtype in (torch.float32, torch.float64):
        layer = make(name, 8, len(shape) - 2).to(dtype)
        outputs = layer(torch.randn(shape, dtype=dtype))
        assert outputs.shape == shape
        assert outputs.dtype == dtype


@pytest.mark.parametrize("name", NAMES)
def test_making_a_layer_draws_nothing(name):
    before = torch.get_rng_state()
    make(name, 8, 2)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("none", "weight")])
def test_every_feature_of_a_batch_or_sample_is_on_one_scale(name):
    torch.manual_seed(0)
    values = torch.randn(64, 8, 4, 4) * 100
    outputs = make(name, 8, 2)(values)
    assert 0.1 < outputs.std() < 2


def test_names_are_those_of_the_documentation():
    assert set(NAMES) == {
        *("none", "batch", "noisy", "l1", "l2", "linf", "layer", "group", "renorm", "weight")
    }


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(AdapterError) as caught:
        make("btch", 8, 2)
    assert caught.value.seen == "btch"
    assert caught.value.hint == ", ".join(NAMES)


def test_an_unknown_option_lists_the_accepted_ones():
    with pytest.raises(AdapterError, match="the normalisation 'group' has no option 'grups'") as e:
        make("group", 8, 2, grups=3)
    assert e.value.hint == ", ".join(accepted_norm_options("group"))


def test_no_epsilon_divides_by_the_deviation_itself():
    values = torch.randn(20, 2, dtype=torch.float64)
    outputs = make("batch", 2, 0, eps=0.0).double()(values)
    expected = (values - values.mean(0)) / values.std(0, correction=0)
    assert torch.allclose(outputs, expected, rtol=1e-13)
