"""The CIFAR loaders, on small files in the format of the binary version."""

import pickle

import numpy as np
import pytest
import torch

from landscape_cli.errors import AdapterError
from sample_models.adapter import build_data
from sample_models.data.cifar import open_cifar10, open_cifar100
from sample_models.data.image_bytes import Augmented, Standardised


def records(count, *, labels=1, classes=10, seed=0):
    generator = np.random.default_rng(seed)
    rows = generator.integers(0, 256, (count, labels + 3072), dtype=np.uint8)
    rows[:, :labels] = generator.integers(0, classes, (count, labels))
    return rows


@pytest.fixture
def cifar10(tmp_path):
    batches = [records(3 + k, seed=k) for k in range(5)]
    for number, rows in enumerate(batches, 1):
        rows.tofile(tmp_path / f"data_batch_{number}.bin")
    records(4, seed=9).tofile(tmp_path / "test_batch.bin")
    return tmp_path, np.concatenate(batches)


def test_training_images_are_those_of_the_five_files_in_order(cifar10):
    folder, rows = cifar10
    data = open_cifar10(str(folder), normalise=False)
    assert len(data) == 3 + 4 + 5 + 6 + 7
    for index in (0, 2, 3, 24):
        image, label = data[index]
        assert label == rows[index, 0]
        assert image.dtype == torch.float32
        # The format: 1024 red bytes row by row, then green, then blue.
        for channel, row, column in [(0, 0, 0), (1, 0, 5), (2, 31, 30)]:
            byte = rows[index, 1 + 1024 * channel + 32 * row + column]
            assert float(image[channel, row, column]) == pytest.approx(byte / 255, rel=1e-6)


def test_test_images_are_those_of_the_test_file(cifar10):
    assert len(open_cifar10(str(cifar10[0]), split="test")) == 4


def test_images_are_kept_as_bytes(cifar10):
    assert open_cifar10(str(cifar10[0])).inputs.dtype == torch.uint8


def test_normalised_images_have_the_published_means_taken_off(cifar10):
    folder, _ = cifar10
    raw, standard = (open_cifar10(str(folder), normalise=n)[1][0] for n in (False, True))
    means = torch.tensor([0.4914, 0.4822, 0.4465])[:, None, None]
    deviations = torch.tensor([0.2470, 0.2435, 0.2616])[:, None, None]
    assert torch.allclose(standard, (raw - means) / deviations, rtol=1e-5, atol=1e-6)


def test_the_archives_own_folder_is_found(cifar10, tmp_path):
    inner = tmp_path / "data" / "cifar-10-batches-bin"
    inner.mkdir(parents=True)
    for file in cifar10[0].glob("*.bin"):
        file.rename(inner / file.name)
    assert len(open_cifar10(str(tmp_path / "data"))) == 25


def test_the_adapter_opens_it(cifar10):
    data = build_data("cifar10", root=str(cifar10[0]), split="test", normalise=False)
    assert len(data) == 4


def test_both_kinds_of_labels_of_cifar_100(tmp_path):
    rows = records(5, labels=2, classes=20)
    rows[:, 1] += 70
    rows.tofile(tmp_path / "train.bin")
    fine = open_cifar100(str(tmp_path))
    coarse = open_cifar100(str(tmp_path), labels="coarse")
    assert fine.targets.tolist() == rows[:, 1].tolist()
    assert coarse.targets.tolist() == rows[:, 0].tolist()
    assert fine.inputs.flatten(1).numpy().tolist() == rows[:, 2:].tolist()


def test_a_missing_file_is_named(cifar10):
    folder, _ = cifar10
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(AdapterError, match="the folder lacks files of the data set") as caught:
        open_cifar10(str(folder))
    assert caught.value.seen == f"{folder} lacks data_batch_3.bin"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(AdapterError, match="does not exist") as caught:
        open_cifar10(str(tmp_path / "none"))
    assert caught.value.seen == str(tmp_path / "none")


def test_pickles_are_told_from_the_binary_version_and_not_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was executed",))

    inner = tmp_path / "cifar-10-batches-py"
    inner.mkdir()
    (inner / "data_batch_1").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(AdapterError) as caught:
        open_cifar10(str(tmp_path))
    assert "never opened" in caught.value.hint


@pytest.mark.parametrize("size", [0, 1, 3072, 3074, 2 * 3073 - 1])
def test_a_file_of_another_size_is_refused(cifar10, size):
    folder, _ = cifar10
    (folder / "test_batch.bin").write_bytes(bytes(size))
    with pytest.raises(AdapterError, match="not a whole number of records of 3073") as caught:
        open_cifar10(str(folder), split="test")
    assert caught.value.seen == f"{size} bytes in {folder / 'test_batch.bin'}"


def test_an_impossible_label_is_refused(cifar10):
    folder, _ = cifar10
    rows = records(4)
    rows[2, 0] = 10
    rows.tofile(folder / "test_batch.bin")
    with pytest.raises(AdapterError, match="none of the 10 classes has") as caught:
        open_cifar10(str(folder), split="test")
    assert caught.value.seen == "label 10 in record 2"


def test_cifar_10_in_the_place_of_cifar_100_is_refused(tmp_path):
    records(7).tofile(tmp_path / "train.bin")
    with pytest.raises(AdapterError, match="not a whole number of records of 3074"):
        open_cifar100(str(tmp_path))


def test_augmented_images_are_windows_of_the_padded_ones():
    pixels = torch.randint(256, (60, 2, 5, 5), dtype=torch.uint8)
    convert = Standardised((0.5, 0.4), (0.2, 0.3))
    images = torch.nn.functional.pad(convert(pixels), [2] * 4)
    found = set()
    for image, padded in zip(Augmented(convert, margin=2)(pixels), images, strict=True):
        windows = {
            (row, column, mirror): padded[:, row : row + 5, column : column + 5]
            for row in range(5)
            for column in range(5)
            for mirror in (False, True)
        }
        fits = [
            key
            for key, value in windows.items()
            if torch.equal(image, value.flip(2) if key[2] else value)
        ]
        assert fits
        found.add(fits[0])
    assert {key[0] for key in found} == {key[1] for key in found} == set(range(5))
    assert {key[2] for key in found} == {False, True}


def test_augmentation_differs_between_accesses_and_follows_the_seed(cifar10):
    data = open_cifar10(str(cifar10[0]), augment=True)
    torch.manual_seed(0)
    first, second = data[0][0], data[0][0]
    torch.manual_seed(0)
    assert torch.equal(data[0][0], first)
    assert not torch.equal(first, second)


def test_augmentation_without_normalisation_is_refused(cifar10):
    with pytest.raises(AdapterError, match="augmentation needs standardised images"):
        open_cifar10(str(cifar10[0]), normalise=False, augment=True)
