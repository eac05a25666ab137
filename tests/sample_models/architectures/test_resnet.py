"""Residual networks against known sizes and the order of their blocks."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from landscape_cli.errors import AdapterError
from sample_models.architectures import ResNet, ResNet18, Style
from sample_models.architectures.residual import BasicBlock, PadShortcut, PreactivationBlock

BATCH = Style(norm="batch", init="he-normal")


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("build", "parameters"),
    [
        (lambda: ResNet(20, style=BATCH), 269_722),
        (lambda: ResNet(20, shortcut="projection", style=BATCH), 272_474),
        (lambda: ResNet(56, style=BATCH), 853_018),
        (lambda: ResNet(110, style=BATCH), 1_727_962),
        (lambda: ResNet18(style=BATCH), 11_173_962),
        (lambda: ResNet18(stem="imagenet", classes=1000, style=BATCH), 11_689_512),
    ],
)
def test_parameter_counts_are_the_known_ones(build, parameters):
    assert count(build()) == parameters


def test_preactivation_has_the_same_convolutions():
    def shapes(model):
        return [tuple(m.weight.shape) for m in model.modules() if isinstance(m, nn.Conv2d)]

    assert shapes(ResNet(110, style=BATCH)) == shapes(ResNet(110, preactivation=True, style=BATCH))
    assert len(shapes(ResNet(110, preactivation=True, style=BATCH))) == 109


@pytest.mark.parametrize("preactivation", [False, True])
@pytest.mark.parametrize("norm_position", ["before", "after"])
@pytest.mark.parametrize("shortcut", ["pad", "projection"])
def test_scores_have_a_column_for_every_class(preactivation, norm_position, shortcut):
    style = Style(norm="batch", norm_position=norm_position)
    options = {"preactivation": preactivation, "shortcut": shortcut, "style": style}
    images = torch.randn(3, 1, 8, 8)
    for model in (
        ResNet(8, width=4, in_channels=1, **options),
        ResNet18(4, in_channels=1, **options),
    ):
        assert model(images).shape == (3, 10)
        assert all(p.grad is None for p in model.parameters())
        model(images).square().sum().backward()
        assert all(p.grad is not None for p in model.parameters())


def test_the_large_stem_divides_the_image_by_four():
    model = ResNet18(4, stem="imagenet", style=BATCH)
    assert model.stem(torch.randn(1, 3, 64, 64)).shape == (1, 4, 16, 16)


@pytest.mark.parametrize("depth", [0, 2, 19, 21, 18])
def test_a_depth_without_such_a_form_is_refused(depth):
    with pytest.raises(AdapterError, match="6n \\+ 2 layers"):
        ResNet(depth)


def norm(values):
    mean, variance = values.mean((0, 2, 3)), values.var((0, 2, 3), correction=0)
    return (values - mean[:, None, None]) / (variance + 1e-5).sqrt()[:, None, None]


def block_and_images(kind, position, shortcut="pad"):
    style = Style(norm="batch", norm_position=position)
    block = kind(2, 4, stride=2, shortcut=shortcut, style=style).double()
    return block, torch.randn(5, 2, 6, 6, dtype=torch.float64)


def convolve(layer, images, stride=1):
    return functional.conv2d(images, layer.weight, layer.bias, stride=stride, padding=1)


def padded(images):
    result = torch.zeros(5, 4, 3, 3, dtype=torch.float64)
    for row in range(3):
        for column in range(3):
            result[:, 1:3, row, column] = images[:, :, 2 * row, 2 * column]
    return result


def test_the_pad_shortcut_takes_every_second_pixel_between_zero_channels():
    images = torch.randn(5, 2, 6, 6, dtype=torch.float64)
    assert torch.equal(PadShortcut(2, 4, stride=2)(images), padded(images))


def test_the_original_block():
    block, images = block_and_images(BasicBlock, "before")
    hidden = norm(convolve(block.conv1, images, stride=2)).relu()
    expected = (norm(convolve(block.conv2, hidden)) + padded(images)).relu()
    assert torch.allclose(block(images), expected, rtol=1e-11)
    assert block.conv1.bias is None


def test_the_original_block_with_norms_behind_activations():
    block, images = block_and_images(BasicBlock, "after")
    hidden = norm(convolve(block.conv1, images, stride=2).relu())
    expected = norm((convolve(block.conv2, hidden) + padded(images)).relu())
    assert torch.allclose(block(images), expected, rtol=1e-10)
    assert block.conv1.bias is not None


def test_the_original_block_normalises_its_projection():
    block, images = block_and_images(BasicBlock, "before", "projection")
    hidden = norm(convolve(block.conv1, images, stride=2)).relu()
    straight = norm(functional.conv2d(images, block.shortcut[0].weight, stride=2))
    expected = (norm(convolve(block.conv2, hidden)) + straight).relu()
    assert torch.allclose(block(images), expected, rtol=1e-11)


def test_the_preactivation_block():
    block, images = block_and_images(PreactivationBlock, "before")
    hidden = convolve(block.conv1, norm(images).relu(), stride=2)
    expected = convolve(block.conv2, norm(hidden).relu()) + padded(images)
    assert torch.allclose(block(images), expected, rtol=1e-11)


def test_the_preactivation_block_projects_the_activated_input():
    block, images = block_and_images(PreactivationBlock, "before", "projection")
    active = norm(images).relu()
    hidden = convolve(block.conv1, active, stride=2)
    straight = functional.conv2d(active, block.shortcut[0].weight, stride=2)
    expected = convolve(block.conv2, norm(hidden).relu()) + straight
    assert torch.allclose(block(images), expected, rtol=1e-11)
