"""The MNIST loaders, on small files in the idx format."""

import gzip
import struct

import numpy as np
import pytest
import torch

from landscape_cli.errors import AdapterError
from sample_models.adapter import build_data
from sample_models.data.mnist import open_fashion_mnist, open_mnist

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def idx(values):
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return header + values.tobytes()


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (7, 28, 28), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path, pixels):
    (tmp_path / IMAGES).write_bytes(idx(pixels))
    (tmp_path / LABELS).write_bytes(idx(np.arange(7, dtype=np.uint8)))
    return tmp_path


def test_images_and_labels_are_those_of_the_files(folder, pixels):
    data = open_mnist(str(folder), normalise=False)
    assert [int(label) for _, label in data] == list(range(7))
    for index in (0, 6):
        image, _ = data[index]
        assert image.shape == (1, 28, 28)
        np.testing.assert_allclose(image[0].numpy(), pixels[index] / 255, rtol=1e-6)


def test_images_are_kept_as_bytes(folder):
    assert open_mnist(str(folder)).inputs.dtype == torch.uint8


@pytest.mark.parametrize(
    ("build", "mean", "deviation"),
    [(open_mnist, 0.1307, 0.3081), (open_fashion_mnist, 0.286, 0.353)],
)
def test_normalised_images_have_the_published_mean_taken_off(folder, build, mean, deviation):
    raw, standard = (build(str(folder), normalise=n)[3][0] for n in (False, True))
    assert torch.allclose(standard, (raw - mean) / deviation, rtol=1e-5, atol=1e-6)


def test_compressed_files_give_the_same(folder, pixels):
    plain = open_mnist(str(folder))
    for name in (IMAGES, LABELS):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    packed = open_mnist(str(folder))
    assert torch.equal(packed.inputs, plain.inputs)
    assert torch.equal(packed.targets, plain.targets)


@pytest.mark.parametrize(
    ("target", "subfolder"), [("mnist", "MNIST/raw"), ("fashion-mnist", "FashionMNIST/raw")]
)
def test_other_tools_folders_are_found(folder, target, subfolder):
    inner = folder / subfolder
    inner.mkdir(parents=True)
    for name in (IMAGES, LABELS):
        (folder / name).rename(inner / name)
    assert len(build_data(target, root=str(folder))) == 7


def test_the_test_split_has_its_own_files(folder):
    for name in (IMAGES, LABELS):
        (folder / name).rename(folder / name.replace("train", "t10k"))
    assert len(open_mnist(str(folder), split="test")) == 7
    with pytest.raises(AdapterError) as caught:
        open_mnist(str(folder))
    assert caught.value.seen == f"{folder} lacks {IMAGES}, {LABELS}"


def damage(folder, change):
    path = folder / IMAGES
    path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (lambda content: b"", "0 bytes, shorter than its header"),
        (lambda content: content[:15], "15 bytes, shorter than its header"),
        (lambda content: content[:-1], "5503 bytes where its header gives 5504"),
        (lambda content: content + b"\0", "5505 bytes where its header gives 5504"),
        (lambda content: b"\0\0\x08\x01" + content[4:], "starts with 0x00000801 instead of"),
        (lambda content: content[:4] + b"\xff" * 12, "16 bytes where its header gives 7922816"),
        (lambda content: content[:4] + bytes(12), "16 bytes where its header gives 16"),
    ],
)
def test_a_damaged_file_is_refused(folder, change, seen):
    damage(folder, change)
    with pytest.raises(AdapterError, match="train-images-idx3-ubyte is not such a file") as caught:
        open_mnist(str(folder))
    assert seen in caught.value.seen


@pytest.mark.parametrize("cut", [3, 12, 60])
def test_a_truncated_archive_is_refused(folder, cut):
    packed = gzip.compress((folder / IMAGES).read_bytes())
    (folder / IMAGES).unlink()
    (folder / f"{IMAGES}.gz").write_bytes(packed[:-cut])
    with pytest.raises(AdapterError, match="is not such a file"):
        open_mnist(str(folder))


@pytest.mark.parametrize("content", [b"no archive", b"\x1f\x8b\x08\x00" + b"\xff" * 40])
def test_an_archive_that_is_none_is_refused(folder, content):
    (folder / IMAGES).unlink()
    (folder / f"{IMAGES}.gz").write_bytes(content)
    with pytest.raises(AdapterError, match="is not such a file"):
        open_mnist(str(folder))


def test_labels_of_another_archive_are_refused(folder):
    (folder / LABELS).write_bytes(idx(np.zeros(6, dtype=np.uint8)))
    with pytest.raises(AdapterError, match="not as many labels as images") as caught:
        open_mnist(str(folder))
    assert caught.value.seen.startswith("7 images, 6 labels")


def test_an_impossible_label_is_refused(folder):
    (folder / LABELS).write_bytes(idx(np.full(7, 10, dtype=np.uint8)))
    with pytest.raises(AdapterError, match="none of the 10 classes"):
        open_mnist(str(folder))
