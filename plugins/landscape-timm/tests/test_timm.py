"""The adapters against timm's own functions, and their refusals."""

import doctest
import os
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest
import torch

pytest.importorskip("torchvision", reason="torchvision is not installed")
pytest.importorskip("timm", reason="timm is not installed")

import timm
from landscape_timm import build_model, models, open_folder
from PIL import Image

from landscape_cli.adapters.conformance import check_data_adapter, check_model_adapter
from landscape_cli.errors import AdapterError

TINY = {"img_size": 16, "patch_size": 8, "depth": 2, "embed_dim": 16, "num_heads": 2}


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for label, size in (("cat", (60, 40)), ("dog", (48, 64))):
        (tmp_path / label).mkdir()
        pixels = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / label / "0.png")
    return tmp_path


def test_the_adapters_conform(folder):
    batch = (torch.randn(2, 3, 16, 16), torch.tensor([0, 2]))
    check_model_adapter(build_model, "vit_tiny_patch16_224", batch, num_classes=3, **TINY)
    check_data_adapter(open_folder, str(folder), model="resnet50.a1_in1k", img_size=32)


def test_a_model_is_the_one_that_timm_builds_and_its_weights_are_not_loaded(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("weights are loaded")

    monkeypatch.setattr("timm.models._builder.load_pretrained", refuse)
    torch.manual_seed(0)
    ours = build_model("vit_tiny_patch16_224.augreg_in21k", num_classes=5, **TINY)
    torch.manual_seed(0)
    theirs = timm.create_model("vit_tiny_patch16_224", num_classes=5, **TINY)
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in ours.state_dict().items())


def test_pictures_are_resized_cropped_and_normalised_as_the_configuration_says(folder):
    """resnet50.a1_in1k: 224 pixels are 95 % of the shorter side, bicubic, ImageNet's mean."""
    data = open_folder(str(folder), model="resnet50.a1_in1k")
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    for (image, _), (path, _) in zip(data, data.samples, strict=True):
        with Image.open(path) as picture:
            width, height = picture.size
            short = min(width, height)
            sizes = (int(235 * width / short), int(235 * height / short))
            resized = picture.resize(sizes, Image.Resampling.BICUBIC)
        left, top = round((sizes[0] - 224) / 2), round((sizes[1] - 224) / 2)
        pixels = np.asarray(resized.crop((left, top, left + 224, top + 224))) / 255
        wanted = ((pixels - mean) / std).transpose(2, 0, 1)
        # float32 pixels of up to three deviations
        assert np.allclose(image.numpy(), wanted, rtol=0, atol=2e-6)


def test_the_size_can_be_the_one_that_is_given_or_that_of_tests(folder):
    side = {"img_size": 64}
    assert open_folder(str(folder), model="resnet50.a1_in1k", **side)[0][0].shape == (3, 64, 64)
    tested = open_folder(str(folder), model="resnet50.a1_in1k", test_size=True)
    assert tested[0][0].shape == (3, 288, 288)


@pytest.mark.parametrize(
    ("target", "options", "what", "hint"),
    [
        ("resnet81", {}, "no model 'resnet81'", "resnet18"),
        ("hf-hub:timm/resnet18", {}, "no model", "hubs are not asked"),
        ("local-dir:/tmp", {}, "no model", "hubs are not asked"),
        ("resnet50.a9_in9k", {}, "no weights 'a9_in9k'", "a1_in1k"),
        ("resnet18", {"pretrained": True}, "no weights", "checkpoint"),
        ("resnet18", {"checkpoint_path": "x.pth"}, "no weights", "checkpoint"),
        ("resnet18", {"num_class": 3}, "refuses these options", "num_class"),
        ("vit_tiny_patch16_224", {"num_heads": 5}, "refuses these options", ""),
    ],
)
def test_a_model_that_cannot_be_meant_is_refused_with_what_to_try(target, options, what, hint):
    with pytest.raises(AdapterError) as caught:
        build_model(target, **options)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert caught.value.seen


@pytest.mark.parametrize(
    ("target", "options", "what", "hint"),
    [
        ("/nowhere", {}, "does not exist", "timm:FOLDER"),
        (".", {"model": "resnet81"}, "no model 'resnet81'", "resnet18"),
        (".", {"img_size": "big"}, "'img_size' cannot be", "pixels"),
        (".", {"test_size": 1}, "'test_size' cannot be", "True or False"),
    ],
)
def test_data_that_cannot_be_meant_are_refused_with_what_to_try(target, options, what, hint):
    with pytest.raises(AdapterError) as caught:
        open_folder(target, **{"model": "resnet18", **options})
    assert what in caught.value.what
    assert hint in caught.value.hint


def test_a_folder_without_classes_is_refused(tmp_path):
    with pytest.raises(AdapterError) as caught:
        open_folder(str(tmp_path), model="resnet18")
    assert "one folder of pictures per class" in caught.value.what


def test_a_torchvision_that_does_not_fit_the_torch_is_an_error_of_three_lines(tmp_path):
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms is missing')")
    code = "import landscape_timm.models"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    what, seen, hint = done.stderr.splitlines()[-3:]
    assert what.startswith("landscape_cli.errors.AdapterError: timm is not installed")
    assert "operator torchvision::nms is missing" in seen
    assert "pip install timm" in hint


def test_the_adapters_are_registered_as_timm():
    (model,) = metadata.entry_points(group="landscape_cli.models", name="timm")
    (data,) = metadata.entry_points(group="landscape_cli.data", name="timm")
    assert (model.load(), data.load()) == (build_model, open_folder)


def test_the_examples_run():
    assert doctest.testmod(models) == (0, 2)
