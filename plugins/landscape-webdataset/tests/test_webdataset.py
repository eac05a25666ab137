"""The adapter against the pictures and numbers that were put into tar files; its refusals."""

import io
import json
import pickle
import tarfile
from importlib import metadata

import numpy as np
import pytest
import torch
from landscape_webdataset import open_shards
from PIL import Image

from landscape_cli import batches
from landscape_cli.adapters.conformance import check_data_adapter
from landscape_cli.errors import AdapterError


def write_shard(path, members, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def picture(seed=0, size=(6, 5), kind="PNG"):
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return pixels, buffer.getvalue()


def array(values):
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path):
    """Two shards of two pictures each."""
    for shard in range(2):
        members = {}
        for number in range(2):
            seed = 2 * shard + number
            members[f"./part/{seed:04d}.png"] = picture(seed)[1]
            members[f"./part/{seed:04d}.cls"] = str(seed % 3).encode()
            members[f"./part/{seed:04d}.json"] = json.dumps({"a": {"b": [seed, 0.5]}}).encode()
        write_shard(tmp_path / f"train-{shard:03d}.tar", members)
    return tmp_path


def test_pictures_are_the_pixels_between_0_and_1_and_targets_the_classes(folder):
    data = open_shards(str(folder))
    assert len(data) == 4
    assert data.keys[0] == "./part/0000"
    for seed, (image, target) in enumerate(data[i] for i in range(4)):
        wanted = picture(seed)[0].transpose(2, 0, 1) / np.float32(255)
        assert np.allclose(image.numpy(), wanted, rtol=0, atol=1e-7)
        assert int(target) == seed % 3
        assert (image.dtype, target.dtype) == (torch.float32, torch.int64)


def test_the_adapter_conforms(folder):
    check_data_adapter(open_shards, str(folder), resize=4)


@pytest.mark.parametrize(
    "target", ["", "train-{000..001}.tar", "train-*.tar", "train-00{0..1}.tar"]
)
def test_a_folder_and_patterns_name_the_same_shards(folder, target):
    assert open_shards(f"{folder}/{target}").keys == open_shards(str(folder)).keys
    assert len(open_shards(str(folder / "train-001.tar"))) == 2


def test_samples_are_drawn_with_the_seed(folder):
    data = open_shards(str(folder))
    first, again, other = (batches.draw(data, 2, 2, seed=seed) for seed in (0, 0, 3))
    assert first.content_hash() == again.content_hash()
    assert first.indices != other.indices


def test_mean_deviation_and_grey_are_applied(folder):
    plain = open_shards(str(folder))[0][0]
    mean, std = (0.5, 0.4, 0.3), (0.1, 0.2, 0.3)
    scaled = open_shards(str(folder), mean=mean, std=std)[0][0]
    for channel in range(3):
        wanted = (plain[channel] - mean[channel]) / std[channel]
        assert torch.allclose(scaled[channel], wanted, rtol=0, atol=1e-6)
    grey = open_shards(str(folder), grey=True)[0][0]
    luma = torch.tensor([0.299, 0.587, 0.114]).reshape(3, 1, 1)
    assert grey.shape == (1, 6, 5)
    assert torch.allclose(grey, (plain * luma).sum(0, keepdim=True), rtol=0, atol=1 / 255)


def test_resizing_keeps_the_middle(tmp_path):
    pixels = np.zeros((8, 16, 3), dtype=np.uint8)
    pixels[:, 2:14] = 255  # two pixels beyond the middle: as far as the filter reaches
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    write_shard(tmp_path / "a.tar", {"0.png": buffer.getvalue(), "0.cls": b"0"})
    image, _ = open_shards(str(tmp_path), resize=4)[0]
    assert image.shape == (3, 4, 4)
    assert bool((image == 1).all())


def test_fields_of_json_and_arrays_are_inputs_and_targets(folder, tmp_path):
    data = open_shards(str(folder), y="json:a.b")
    assert data[2][1].tolist() == [2.0, 0.5]
    assert open_shards(str(folder), y="json:a.b.0")[3][1].tolist() == 3
    values = np.arange(6, dtype=">f8").reshape(2, 3)
    members = {
        "0.rgb.npy": array(values),
        "0.other.npy": array(np.array([7], dtype=np.int16)),
        "0.cls": b"1",
    }
    write_shard(tmp_path / "arrays.tar", members)
    image, target = open_shards(str(tmp_path / "arrays.tar"), x="rgb.npy", y="other.npy")[0]
    assert torch.equal(image, torch.arange(6.0).reshape(2, 3))
    assert (target.dtype, target.tolist()) == (torch.int16, [7])


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_no_pickle_is_ever_run(tmp_path):
    mark = tmp_path / "ran"
    evil = pickle.dumps(Evil(mark))
    objects = io.BytesIO()
    np.save(objects, np.array([Evil(mark)], dtype=object), allow_pickle=True)
    members = {"0.pyd": evil, "0.pkl": evil, "0.pth": evil, "0.npy": objects.getvalue()}
    write_shard(tmp_path / "a.tar", {**members, "0.cls": b"1"})
    for name in ("pyd", "pkl", "pth"):
        with pytest.raises(AdapterError, match="cannot be"):
            open_shards(str(tmp_path), x=name)
    with pytest.raises(AdapterError, match="cannot be read"):
        open_shards(str(tmp_path))[0]
    assert not mark.exists()


def test_links_and_hidden_files_are_no_members(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, kind in (("0.png", tarfile.SYMTYPE), ("0.npy", tarfile.LNKTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        hidden = tarfile.TarInfo("._0.png")
        hidden.size = 3
        archive.addfile(hidden, io.BytesIO(b"abc"))
    with pytest.raises(AdapterError, match="hold no samples"):
        open_shards(str(tmp_path))


@pytest.mark.parametrize(
    ("target", "options", "what", "hint"),
    [
        ("missing", {}, "no shards there", "pattern"),
        ("train-{000..002}.tar", {}, "no shards there", "pattern"),
        ("train-{9..0}.tar", {}, "range of shards", "{000..009}"),
        ("", {"x": "pkl"}, "'x' cannot be 'pkl'", "pickles are never read"),
        ("", {"resize": 0}, "'resize' cannot be 0", "pixels"),
        ("", {"std": 0}, "'std' cannot be 0", "positive"),
        ("", {"mean": "a"}, "'mean' cannot be 'a'", "per channel"),
        ("", {"grey": 1}, "'grey' cannot be 1", "True"),
        ("packed.tar.gz", {}, "a shard cannot be read", "uncompressed"),
        ("broken.tar", {}, "a shard cannot be read", "uncompressed"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_try(folder, target, options, what, hint):
    if target == "packed.tar.gz":
        write_shard(folder / target, {"0.cls": b"1"}, mode="w:gz")
    if target == "broken.tar":
        (folder / target).write_bytes(b"not a tar file" * 100)
    with pytest.raises(AdapterError) as caught:
        open_shards(f"{folder}/{target}", **options)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert caught.value.seen


@pytest.mark.parametrize(
    ("members", "options", "what"),
    [
        ({"0.png": b"no picture", "0.cls": b"1"}, {}, "cannot be read"),
        ({"0.png": picture()[1], "0.cls": b"one"}, {}, "cannot be read"),
        ({"0.png": picture()[1]}, {}, "lacks a member"),
        ({"0.png": picture()[1], "0.json": b"{"}, {"y": "json:a"}, "cannot be read"),
        ({"0.png": picture()[1], "0.json": b"{}"}, {"y": "json:a"}, "cannot be read"),
        ({"0.png": picture()[1], "0.json": b'{"a": "b"}'}, {"y": "json:a"}, "cannot be read"),
    ],
)
def test_a_sample_that_cannot_be_read_is_an_error_that_names_it(tmp_path, members, options, what):
    write_shard(tmp_path / "a.tar", members)
    with pytest.raises(AdapterError) as caught:
        open_shards(str(tmp_path), **options)[0]
    assert what in caught.value.what
    assert caught.value.seen.startswith("0")


def test_a_picture_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    write_shard(tmp_path / "a.tar", {"0.png": picture()[1], "0.cls": b"1"})
    with pytest.raises(AdapterError) as caught:
        open_shards(str(tmp_path))[0]
    assert caught.value.hint == "the picture is too large"


def test_shards_that_webdataset_wrote_are_read(tmp_path):
    wds = pytest.importorskip("webdataset", reason="webdataset is not installed")
    with wds.TarWriter(str(tmp_path / "a.tar")) as writer:
        for number in range(3):
            values = np.full(2, number, dtype=np.float32)
            writer.write({"__key__": f"k{number}", "npy": values, "cls": number})
    data = open_shards(str(tmp_path))
    assert [(x.tolist(), int(y)) for x, y in data] == [([n, n], n) for n in (0.0, 1.0, 2.0)]


def test_the_adapter_is_registered_as_webdataset():
    (entry,) = metadata.entry_points(group="landscape_cli.data", name="webdataset")
    assert entry.load() is open_shards
