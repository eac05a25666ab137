"""The 5-layer CNN: its layout and its sizes."""

import pytest
import torch
from torch import nn

from landscape_cli.errors import AdapterError
from sample_models.architectures import CNN, Style


def test_three_convolutions_and_two_dense_layers():
    model = CNN()
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    shapes = [tuple(layer.weight.shape) for layer in layers]
    assert shapes == [(32, 3, 3, 3), (64, 32, 3, 3), (32, 64, 3, 3), (64, 32 * 64), (10, 64)]
    assert sum(isinstance(m, nn.MaxPool2d) for m in model.modules()) == 2


def test_without_padding_the_dense_layer_is_the_tutorials():
    # 32 → 30 → 15 → 13 → 6 → 4: 4·4 pixels of 32 channels.
    assert CNN(padding="valid").hidden.layer.in_features == 512


@pytest.mark.parametrize(("image_size", "padding"), [(8, "same"), (28, "valid"), (18, "valid")])
def test_scores_have_a_column_for_every_class(image_size, padding):
    model = CNN((4, 6, 5), classes=7, in_channels=1, image_size=image_size, padding=padding)
    assert model(torch.randn(3, 1, image_size, image_size)).shape == (3, 7)


def test_an_image_that_vanishes_is_refused():
    with pytest.raises(AdapterError, match="nothing of the image is left") as caught:
        CNN(image_size=8, padding="valid")
    assert "padding=same" in caught.value.hint


def test_the_norm_sees_pooled_activations_unless_told():
    names = [name for name, _ in CNN(style=Style(norm="batch")).features[0].named_children()]
    assert names == ["layer", "norm", "activation", "pool"]
    default = CNN.default_style
    assert default.norm_position == "after"
    style = Style(norm="batch", norm_position="after")
    names = [name for name, _ in CNN(style=style).features[0].named_children()]
    assert names == ["layer", "activation", "pool", "norm"]
