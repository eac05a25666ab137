from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from landscape_cli.checkpoints import read
from landscape_cli.checkpoints.shards import inside
from landscape_cli.errors import CheckpointError


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    save_file({"a": torch.ones(2)}, folder / "one.safetensors", metadata={"training_step": "5"})
    save_file({"b": torch.zeros(2)}, folder / "two.safetensors", metadata={"learning_rate": "0.5"})
    save_file({"secret": torch.ones(1)}, tmp_path / "secret.safetensors")
    return folder


def index(folder, weight_map) -> None:
    text = json.dumps({"weight_map": weight_map})
    (folder / "model.safetensors.index.json").write_text(text)


def test_shards_are_put_together_in_the_order_of_the_index(home):
    index(home, {"b": "two.safetensors", "a": "one.safetensors"})
    checkpoint = read(home)
    assert list(checkpoint.tensors) == ["b", "a"]
    assert (checkpoint.info.training_step, checkpoint.info.learning_rate) == (5, 0.5)


@pytest.mark.parametrize(
    "name",
    ["../secret.safetensors", "{outside}/secret.safetensors", "x/../../secret.safetensors", "link"],
)
def test_an_index_cannot_name_files_outside_its_folder(name, home, tmp_path):
    (home / "link").symlink_to(tmp_path / "secret.safetensors")
    index(home, {"secret": name.format(outside=tmp_path)})
    with pytest.raises(CheckpointError) as error:
        read(home)
    assert "outside the folder" in error.value.seen or "out of the folder" in error.value.seen


@pytest.mark.parametrize("name", ["", ".", "no\0name", "sub"])
def test_an_index_cannot_name_what_is_no_file(name, home):
    (home / "sub").mkdir()
    index(home, {"a": name})
    with pytest.raises(CheckpointError):
        read(home)


def test_links_of_the_hugging_face_cache_are_followed(home, tmp_path):
    cache = tmp_path / "models--x"
    (cache / "snapshots" / "abc").mkdir(parents=True)
    (cache / "blobs").mkdir()
    (home / "one.safetensors").rename(cache / "blobs" / "1234")
    link = cache / "snapshots" / "abc" / "one.safetensors"
    link.symlink_to("../../blobs/1234")
    index(link.parent, {"a": "one.safetensors"})
    assert read(link.parent).tensors["a"].tolist() == [1.0, 1.0]


def test_links_within_the_folder_are_followed(home):
    (home / "alias.safetensors").symlink_to("one.safetensors")
    assert inside(home, "alias.safetensors") == home / "alias.safetensors"


def test_a_missing_shard_is_named(home):
    index(home, {"a": "one.safetensors", "c": "three.safetensors"})
    with pytest.raises(CheckpointError) as error:
        read(home)
    assert "three.safetensors" in error.value.seen


def test_a_tensor_that_its_shard_lacks_is_named(home):
    index(home, {"a": "one.safetensors", "c": "two.safetensors"})
    with pytest.raises(CheckpointError) as error:
        read(home)
    assert "two.safetensors lacks c" in error.value.seen


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {"a": 1}}'],
)
def test_what_is_no_index_is_an_error(text, home):
    (home / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointError):
        read(home)


def test_json_nested_without_end_is_an_error(home):
    (home / "model.safetensors.index.json").write_text("[" * 200_000)
    with pytest.raises(CheckpointError):
        read(home)


def test_an_index_of_enormous_size_is_not_read(home, monkeypatch):
    monkeypatch.setattr("landscape_cli.checkpoints.shards._LARGEST_TEXT", 20)
    index(home, {"a": "one.safetensors"})
    with pytest.raises(CheckpointError) as error:
        read(home)
    assert "larger than 20 bytes" in error.value.seen
