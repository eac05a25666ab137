"""Layer and group normalisation against their definitions in numpy."""

import numpy as np
import pytest
import torch

from landscape_cli.errors import AdapterError
from sample_models.normalisation import make


def normalised_by_groups(values, groups, eps):
    result = np.empty_like(values)
    size = values.shape[1] // groups
    for sample in range(values.shape[0]):
        for group in range(groups):
            part = np.s_[sample, group * size : (group + 1) * size]
            result[part] = (values[part] - values[part].mean()) / np.sqrt(values[part].var() + eps)
    return result


@pytest.mark.parametrize("shape", [(5, 8), (5, 8, 3, 2)])
@pytest.mark.parametrize(
    ("name", "options", "groups"),
    [
        ("layer", {}, 1),
        ("group", {"groups": 2}, 2),
        ("group", {"group_size": 2}, 4),
        ("group", {}, 2),
    ],
)
def test_mean_and_variance_are_those_of_the_samples_groups(name, options, groups, shape):
    values = np.random.default_rng(0).normal(2.0, 3.0, shape)
    layer = make(name, 8, len(shape) - 2, eps=1e-3, **options).double()
    expected = normalised_by_groups(values, groups, 1e-3)
    outputs = layer(torch.from_numpy(values)).detach().numpy()
    np.testing.assert_allclose(outputs, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("features", "groups"), [(8, 2), (10, 5), (9, 3), (7, 7)])
def test_the_default_group_is_the_largest_of_up_to_four_that_divides(features, groups):
    assert make("group", features, 2).num_groups == groups


@pytest.mark.parametrize(
    "options", [{"groups": 3}, {"group_size": 3}, {"groups": 0}, {"group_size": 16}]
)
def test_groups_that_do_not_divide_the_features_are_refused(options):
    with pytest.raises(AdapterError, match="8 features cannot be divided"):
        make("group", 8, 2, **options)


def test_groups_and_their_size_together_are_refused():
    with pytest.raises(AdapterError, match="not both"):
        make("group", 8, 2, groups=2, group_size=4)
