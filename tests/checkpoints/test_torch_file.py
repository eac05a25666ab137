from __future__ import annotations

import io
import pickle
import struct
import tarfile
from collections import OrderedDict

import numpy as np
import pytest
import torch
from saved_checkpoints import make_net

from landscape_cli.checkpoints import read
from landscape_cli.checkpoints.damage import DamagedError
from landscape_cli.checkpoints.torch_file import read_tree, tree_of
from landscape_cli.errors import CheckpointError


class Stored:
    def __init__(self, *identifier) -> None:
        self.identifier = ("storage", torch.FloatStorage, *identifier)


class Tensor:
    def __init__(self, storage, offset, shape, stride) -> None:
        self.parts = (storage, offset, shape, stride, False, OrderedDict())

    def __reduce__(self):
        return torch._utils._rebuild_tensor_v2, self.parts


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return value.identifier if isinstance(value, Stored) else None


def legacy(tree, storages: dict[str, list[float]]) -> bytes:
    """Write the stream that torch before 1.6 wrote, storages behind the pickle."""
    stream = io.BytesIO()
    for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
        pickle.dump(value, stream, protocol=2)
    Pickler(stream, protocol=2).dump(tree)
    pickle.dump(list(storages), stream, protocol=2)
    for values in storages.values():
        stream.write(struct.pack(f"<q{len(values)}f", len(values), *values))
    return stream.getvalue()


def test_views_of_storages_in_the_older_stream_are_read():
    root = Stored("7", "cpu", 6, None)
    view = Stored("7", "cuda:0", 6, ("8", 2, 3))
    tree = {"root": Tensor(root, 0, (2, 3), (3, 1)), "view": Tensor(view, 1, (2,), (1,))}
    found = tree_of(memoryview(bytearray(legacy(tree, {"7": [0, 1, 2, 3, 4, 5]}))))
    assert found["root"].load().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["view"].load().tolist() == [3, 4]


def test_a_view_beyond_its_storage_is_refused():
    view = Stored("7", "cpu", 6, ("8", 4, 3))
    data = legacy({"w": Tensor(view, 0, (3,), (1,))}, {"7": [0, 1, 2, 3, 4, 5]})
    with pytest.raises(DamagedError):
        tree_of(memoryview(bytearray(data)))


def test_views_without_end_are_refused():
    tensors = {
        str(i): Tensor(Stored("7", "cpu", 10**6, (f"v{i}", 0, 10**6)), 0, (1,), (1,))
        for i in range(60)
    }
    data = legacy(tensors, {"7": [0.0] * 10**6})
    with pytest.raises(DamagedError, match="overlap without end"):
        tree_of(memoryview(bytearray(data)))


def test_a_storage_that_the_stream_does_not_list_is_refused():
    data = legacy({"w": Tensor(Stored("7", "cpu", 1, None), 0, (1,), (1,))}, {})
    tree = tree_of(memoryview(bytearray(data)))
    with pytest.raises(DamagedError, match="does not hold"):
        tree["w"].load()


def test_storages_that_lie_askew_are_copied_to_where_they_align():
    tree = {"w": Tensor(Stored("7", "cpu", 2, None), 0, (2,), (1,))}
    loaded = tree_of(memoryview(bytearray(legacy(tree, {"7": [1, 2]}))))["w"].load()
    assert loaded.data_ptr() % 4 == 0
    assert loaded.tolist() == [1.0, 2.0]


def test_hyperparameters_keep_their_numbers(tmp_path):
    values = {
        "i": np.int64(3),
        "f": np.float32(0.5),
        "b": np.bool_(True),
        "n": 2**80,
        "t": (1, "a"),
    }
    torch.save(values, tmp_path / "a.pt")
    assert read_tree(tmp_path / "a.pt") == {"i": 3, "f": 0.5, "b": True, "n": 2**80, "t": (1, "a")}


def test_the_tar_files_of_the_first_releases_are_named(tmp_path):
    with tarfile.open(tmp_path / "a.pt", "w") as file:
        file.addfile(tarfile.TarInfo("storages"))
    with pytest.raises(CheckpointError) as error:
        read(tmp_path / "a.pt")
    assert "tar format" in error.value.seen


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("zipped", [True, False])
def test_every_protocol_gives_the_same_tensors(protocol, zipped, tmp_path):
    net = make_net()
    path = tmp_path / "a.pt"
    torch.save(net, path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    tensors = read(path).tensors
    assert all(torch.equal(tensors[name], value) for name, value in net.state_dict().items())
