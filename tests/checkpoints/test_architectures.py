from __future__ import annotations

import pytest

from landscape_cli.checkpoints.architectures import Guess, guess


def resnet(depths, *, bottleneck=False, classes=10, prefix=""):
    shapes = {"conv1.weight": (64, 3, 7, 7), "bn1.weight": (64,), "fc.weight": (classes, 512)}
    for stage, depth in enumerate(depths, 1):
        for block in range(depth):
            for conv in range(1, 4 if bottleneck else 3):
                shapes[f"layer{stage}.{block}.conv{conv}.weight"] = (64, 64, 3, 3)
    return {prefix + name: shape for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("shapes", "name"),
    [
        (resnet((2, 2, 2, 2)), "resnet18"),
        (resnet((3, 4, 6, 3)), "resnet34"),
        (resnet((3, 4, 6, 3), bottleneck=True), "resnet50"),
        (resnet((3, 4, 23, 3), bottleneck=True, prefix="module.model."), "resnet101"),
    ],
)
def test_residual_networks_are_told_by_their_blocks(shapes, name):
    assert guess(shapes) == Guess(f"torchvision {name}", f"torchvision:{name}?num_classes=10")


def test_other_residual_networks_have_a_family_and_no_spec():
    assert guess(resnet((9, 9, 9))) == Guess("ResNet")


def test_vggs_are_told_by_their_convolutions():
    shapes = {f"features.{i}.weight": (64, 3, 3, 3) for i in range(8)}
    shapes |= {"features.1.running_mean": (64,), "classifier.6.weight": (100, 4096)}
    assert guess(shapes) == Guess("torchvision vgg11_bn", "torchvision:vgg11_bn?num_classes=100")


def test_vision_transformers_are_told_by_width_patch_and_positions():
    shapes = {
        "patch_embed.proj.weight": (192, 3, 16, 16),
        "pos_embed": (1, 197, 192),
        "head.weight": (7, 192),
    }
    assert guess(shapes) == Guess(
        "timm vit_tiny_patch16_224", "timm:vit_tiny_patch16_224?num_classes=7"
    )
    shapes = {"conv_proj.weight": (768, 3, 32, 32), "heads.head.weight": (5, 768)}
    assert guess(shapes) == Guess("torchvision vit_b_32", "torchvision:vit_b_32?num_classes=5")


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("transformer.h.0.attn.c_attn.weight", "GPT-2"),
        ("model.layers.0.self_attn.q_proj.weight", "Llama-like language model"),
        ("bert.encoder.layer.0.attention.self.query.weight", "BERT-like encoder"),
        ("encoder.block.0.layer.0.SelfAttention.q.weight", "T5-like encoder-decoder"),
        ("lstm.weight_ih_l0", "LSTM"),
    ],
)
def test_language_models_are_told_by_a_name(name, family):
    assert guess({name: (4, 4)}) == Guess(family)


@pytest.mark.parametrize(
    "shapes",
    [
        {},
        {"0.weight": (3, 3)},
        {"layer1.0.conv1.weight": (1,)},
        {"features.0.weight": ()},
        {"patch_embed.proj.weight": ()},
        {"conv_proj.weight": ()},
        {"patch_embed.proj.weight": (192, 3, 0, 0), "pos_embed": (1, 0, 1)},
    ],
)
def test_strange_shapes_are_no_obstacle(shapes):
    found = guess(shapes)
    assert found is None or found.model == ""
