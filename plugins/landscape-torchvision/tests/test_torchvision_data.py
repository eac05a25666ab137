"""The data adapter against torchvision's own data sets and transforms, and its refusals."""

import pickle
from importlib import metadata

import numpy as np
import pytest
import torch

pytest.importorskip("torchvision", reason="torchvision is not installed")

import torchvision
from landscape_torchvision import open_dataset
from PIL import Image
from torchvision.datasets.utils import calculate_md5

from landscape_cli import batches
from landscape_cli.adapters.conformance import check_data_adapter
from landscape_cli.errors import AdapterError


@pytest.fixture
def folder(tmp_path):
    """Two classes of pictures of different sizes, one of them grey."""
    rng = np.random.default_rng(0)
    for number, (label, mode, size) in enumerate(
        [("cat", "RGB", (40, 30)), ("cat", "L", (28, 36)), ("dog", "RGB", (32, 32))]
    ):
        shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
        (tmp_path / label).mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, shape, dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / label / f"{number}.png")
    return tmp_path


@pytest.fixture
def cifar(tmp_path, monkeypatch):
    """CIFAR-10 as it lies on the disk, but with four pictures."""
    rng = np.random.default_rng(1)
    content = {
        "data": rng.integers(0, 256, (4, 3072), dtype=np.uint8),
        "labels": [3, 1, 4, 1],
        "label_names": [f"class {i}" for i in range(10)],
    }
    base = tmp_path / "cifar-10-batches-py"
    base.mkdir()
    for name in ("test_batch", "batches.meta"):
        (base / name).write_bytes(pickle.dumps(content))
    kind = torchvision.datasets.CIFAR10
    monkeypatch.setattr(kind, "train_list", [])
    sums = {name: calculate_md5(base / name) for name in ("test_batch", "batches.meta")}
    monkeypatch.setattr(kind, "test_list", [["test_batch", sums["test_batch"]]])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": sums["batches.meta"]})
    return tmp_path, content


def test_the_adapter_conforms(folder):
    check_data_adapter(open_dataset, "ImageFolder", root=str(folder), resize=16)
    check_data_adapter(open_dataset, "FakeData", size=5, image_size=(3, 8, 8), num_classes=2)


def test_cifar_is_read_from_the_disk_as_numbers_between_0_and_1(cifar):
    root, content = cifar
    data = open_dataset("CIFAR10", root=str(root), train=False)
    images = torch.stack([image for image, _ in data])
    wanted = content["data"].reshape(4, 3, 32, 32) / np.float32(255)
    assert images.dtype == torch.float32
    assert np.allclose(images.numpy(), wanted, rtol=0, atol=1e-7)
    assert [target for _, target in data] == content["labels"]


def test_mean_and_deviation_are_applied_channel_by_channel(cifar):
    root, _ = cifar
    mean, std = (0.5, 0.4, 0.3), (0.1, 0.2, 0.3)
    plain = open_dataset("CIFAR10", root=str(root), train=False)[0][0]
    scaled = open_dataset("CIFAR10", root=str(root), train=False, mean=mean, std=std)[0][0]
    for channel in range(3):
        wanted = (plain[channel] - mean[channel]) / std[channel]
        assert torch.allclose(scaled[channel], wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("weights", ["ResNet18_Weights.IMAGENET1K_V1", "resnet18"])
def test_the_transforms_of_the_weights_are_those_of_torchvision(folder, weights):
    data = open_dataset("ImageFolder", root=str(folder), weights=weights)
    transform = torchvision.models.ResNet18_Weights.IMAGENET1K_V1.transforms()
    for (image, _), (path, _) in zip(data, data.samples, strict=True):
        with Image.open(path) as picture:
            assert torch.equal(image, transform(picture.convert("RGB")))


def test_grey_pictures_become_coloured_for_the_transforms_of_weights(cifar):
    grey = open_dataset("FakeData", size=1, image_size=(1, 8, 8), num_classes=2, weights="resnet18")
    assert grey[0][0].shape == (3, 224, 224)


def test_pictures_of_different_sizes_form_a_batch_when_resized(folder):
    data = open_dataset("ImageFolder", root=str(folder), resize=16)
    (batch,) = batches.draw(data, 3, 1, seed=0).batches
    assert batch[0].shape == (3, 3, 16, 16)
    assert sorted(batch[1].tolist()) == [0, 0, 1]


@pytest.mark.parametrize(
    ("target", "options", "what", "hint"),
    [
        ("CIFAR11", {"root": "."}, "no data set 'CIFAR11'", "CIFAR10"),
        ("CocoCaptions2", {}, "no data set", "CocoCaptions"),
        ("CIFAR10", {"root": "/nowhere"}, "cannot be opened", "download=True"),
        ("CIFAR10", {}, "cannot be opened", "root=DIR"),
        ("SBU", {"root": "/nowhere"}, "cannot be opened", "download=True"),
        ("CIFAR10", {"root": ".", "download": True}, "nothing is downloaded", "once, in Python"),
        ("CIFAR10", {"root": ".", "trian": True}, "no option 'trian'", "train"),
        ("CIFAR10", {"root": ".", "transform": "x"}, "no option 'transform'", "resize"),
        ("FakeData", {"weights": "resnet81"}, "no weights 'resnet81'", "ResNet18_Weights"),
        ("FakeData", {"weights": "Any.DEFAULT"}, "no weights 'Any.DEFAULT'", "ResNet18_Weights"),
        ("FakeData", {"weights": "resnet18", "resize": 8}, "their own transforms", "leave resize"),
        ("FakeData", {"resize": 0}, "'resize' cannot be 0", "pixels"),
        ("FakeData", {"std": (1, 0, 1)}, "'std' cannot be", "positive"),
        ("FakeData", {"mean": "half"}, "'mean' cannot be", "per channel"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_try(target, options, what, hint):
    with pytest.raises(AdapterError) as caught:
        open_dataset(target, **options)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert caught.value.seen


def test_the_adapter_is_registered_as_torchvision():
    (entry,) = metadata.entry_points(group="landscape_cli.data", name="torchvision")
    assert entry.load() is open_dataset
