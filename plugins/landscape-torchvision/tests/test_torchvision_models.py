"""The model adapter against torchvision's own builders, and its refusals."""

import doctest
import os
import subprocess
import sys
from importlib import metadata

import pytest
import torch

pytest.importorskip("torchvision", reason="torchvision is not installed")

import torchvision
from landscape_torchvision import build_model, models

from landscape_cli.adapters.conformance import check_model_adapter
from landscape_cli.errors import AdapterError

VIT = {
    "image_size": 32,
    "patch_size": 8,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "mlp_dim": 24,
    "num_classes": 3,
}


def pictures(side=32, classes=3):
    generator = torch.Generator().manual_seed(0)
    shape = (2, 3, side, side)
    return torch.randn(shape, generator=generator), torch.arange(2) % classes


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("resnet18", {"num_classes": 3}),
        ("squeezenet1_1", {"num_classes": 3}),
        ("shufflenet_v2_x0_5", {"num_classes": 3}),
        ("VisionTransformer", VIT),
        ("ResNet", {"block": "Bottleneck", "layers": (1, 1, 1, 1), "width_per_group": 2}),
    ],
)
def test_the_adapter_conforms(target, options):
    check_model_adapter(build_model, target, pictures(), **options)


@pytest.mark.parametrize("target", ["resnet18", "mobilenet_v3_small", "efficientnet_b0"])
def test_a_model_is_the_one_that_torchvision_builds(target):
    torch.manual_seed(0)
    ours = build_model(target, num_classes=5)
    torch.manual_seed(0)
    theirs = torchvision.models.get_model(target, weights=None, num_classes=5)
    assert type(ours) is type(theirs)
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in ours.state_dict().items())


def test_a_segmentation_model_returns_scores_and_fetches_no_backbone(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("something is downloaded")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", refuse)
    model = build_model("lraspp_mobilenet_v3_large", num_classes=4).eval()
    theirs = torchvision.models.segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=4
    ).eval()
    theirs.load_state_dict(model.state_dict())
    images, _ = pictures()
    with torch.no_grad():
        assert torch.equal(model(images), theirs(images)["out"])


def test_googlenet_is_built_without_its_warning():
    model = build_model("googlenet", num_classes=3, aux_logits=False, init_weights=False)
    assert model.fc.out_features == 3


@pytest.mark.parametrize(
    ("target", "options", "what", "hint"),
    [
        ("resnet81", {}, "no model 'resnet81'", "resnet18"),
        ("resnet18", {"weights": "DEFAULT"}, "no weights are downloaded", "checkpoint"),
        ("resnet18", {"pretrained": True}, "no weights are downloaded", "checkpoint"),
        (
            "fcn_resnet50",
            {"weights_backbone": "DEFAULT"},
            "no weights are downloaded",
            "checkpoint",
        ),
        ("resnet18", {"num_class": 3}, "refuses these options", "num_class"),
        ("VisionTransformer", {**VIT, "image_size": 30}, "refuses these options", ""),
        ("ResNet", {"block": "Brick", "layers": (1, 1, 1, 1)}, "refuses these options", ""),
        ("ResNet18_Weights", {}, "no model", "resnet18"),
        ("VisionTransformer", {"weights": "DEFAULT"}, "no weights are downloaded", "checkpoint"),
        ("fasterrcnn_resnet50_fpn", {}, "detection models", "FILE.py"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_try(target, options, what, hint):
    with pytest.raises(AdapterError) as caught:
        build_model(target, **options)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert caught.value.seen


def test_a_torchvision_that_does_not_fit_the_torch_is_an_error_of_three_lines(tmp_path):
    (tmp_path / "torchvision.py").write_text(
        "raise RuntimeError('operator torchvision::nms is missing')"
    )
    code = "import landscape_torchvision.models"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    what, seen, hint = done.stderr.splitlines()[-3:]
    assert what.startswith(
        "landscape_cli.errors.AdapterError: torchvision is not installed in a build that fits"
    )
    assert "operator torchvision::nms is missing" in seen
    assert "pytorch.org" in hint


def test_the_adapter_is_registered_as_torchvision():
    (entry,) = metadata.entry_points(group="landscape_cli.models", name="torchvision")
    assert entry.load() is build_model


def test_the_examples_run():
    assert doctest.testmod(models) == (0, 2)
