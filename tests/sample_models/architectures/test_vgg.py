"""The VGG against known sizes, and on images of any size."""

import pytest
import torch
from torch import nn

from landscape_cli.errors import AdapterError
from sample_models.architectures import VGG, Style


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("depth", "parameters"), [(11, 9_231_114), (13, 9_416_010), (16, 14_728_266), (19, 20_040_522)]
)
def test_parameter_counts_are_the_known_ones_with_batch_norm(depth, parameters):
    assert count(VGG(depth, style=Style(norm="batch"))) == parameters


def test_without_a_norm_its_scales_and_shifts_are_gone():
    # 64 + 128 + 2·256 + 4·512 features, two parameters each.
    assert count(VGG(11)) == 9_231_114 - 2 * 2752


@pytest.mark.parametrize("image_size", [1, 2, 5, 8, 28, 32, 48])
def test_images_of_any_size_pass_whether_announced_or_not(image_size):
    images = torch.randn(2, 1, image_size, image_size)
    for announced in (image_size, 32):
        model = VGG(width=2, in_channels=1, classes=7, image_size=announced)
        assert model(images).shape == (2, 7)


def test_leaving_out_poolings_of_a_single_pixel_changes_nothing():
    images = torch.randn(3, 1, 8, 8)
    small, large = (VGG(width=4, in_channels=1, image_size=size) for size in (8, 32))
    small.load_state_dict(large.state_dict())
    poolings = [sum(isinstance(m, nn.MaxPool2d) for m in net.modules()) for net in (small, large)]
    assert poolings == [3, 5]
    assert torch.equal(small(images), large(images))


def test_norm_stands_before_the_activation_or_behind_the_pooling():
    first = VGG(width=2, style=Style(norm="batch")).features[0]
    assert [name for name, _ in first.named_children()] == ["layer", "norm", "activation", "pool"]
    style = Style(norm="batch", norm_position="after")
    behind = VGG(width=2, style=style).features[0]
    assert [name for name, _ in behind.named_children()] == ["layer", "activation", "pool", "norm"]


def test_a_configuration_of_ones_own_and_dense_layers_before_the_output():
    model = VGG(config=(4, "M", 6), head=(5,), in_channels=1, classes=3)
    convolutions = (9 + 1) * 4 + (4 * 9 + 1) * 6
    assert count(model) == convolutions + (6 + 1) * 5 + (5 + 1) * 3
    assert model(torch.randn(2, 1, 8, 8)).shape == (2, 3)


@pytest.mark.parametrize("config", [(), ("M", 8), (8, "M", "M"), (8, 0), ("M",)])
def test_a_configuration_that_is_none_is_refused(config):
    with pytest.raises(AdapterError, match="the VGG configuration is not"):
        VGG(config=config)


def test_forward_is_convolution_norm_activation_pooling():
    model = VGG(config=(3, "M"), in_channels=1, style=Style(norm="batch")).double()
    images = torch.randn(4, 1, 4, 4, dtype=torch.float64)
    convolution, output = model.features[0].layer, model.output
    values = nn.functional.conv2d(images, convolution.weight, convolution.bias, padding=1)
    mean, variance = values.mean((0, 2, 3)), values.var((0, 2, 3), correction=0)
    values = (values - mean[:, None, None]) / (variance + 1e-5).sqrt()[:, None, None]
    values = values.clamp(min=0).unflatten(2, (2, 2)).unflatten(4, (2, 2)).amax((3, 5))
    expected = values.mean((2, 3)) @ output.weight.T + output.bias
    assert torch.allclose(model(images), expected, rtol=1e-12)


def test_a_small_one_learns_digits_in_seconds():
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).float().reshape(-1, 1, 8, 8)[:256] / 16
    targets = torch.from_numpy(labels)[:256]
    model = VGG(width=4, in_channels=1, image_size=8, style=Style(norm="batch"))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(60):
        loss = nn.functional.cross_entropy(model(images), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[0] > 2
    assert losses[-1] < 0.5
