from __future__ import annotations

import io
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from saved_checkpoints import RATE, STEP, WRITERS, save_distributed
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from landscape_cli.checkpoints import describe, inspect, read
from landscape_cli.errors import CheckpointError


def write(folder: Path, shape, boxes, values: torch.Tensor | None = None, **changes) -> Path:
    """Write one tensor `w` in boxes, each (offsets, sizes), as ranks would."""
    values = (
        torch.arange(float(torch.Size(shape).numel())).reshape(shape) if values is None else values
    )
    folder.mkdir(exist_ok=True)
    storage, chunks = {}, []
    with (folder / "__0_0.distcp").open("wb") as file:
        for offsets, sizes in boxes:
            part = values[tuple(slice(o, o + n) for o, n in zip(offsets, sizes, strict=True))]
            buffer = io.BytesIO()
            torch.save(part.clone(), buffer)
            start = file.tell()
            file.write(buffer.getvalue() + b"\0" * changes.get("padding", 0))
            chunks.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
            place = _StorageInfo(
                changes.get("file", "__0_0.distcp"),
                start + changes.get("shift", 0),
                len(buffer.getvalue()) + changes.get("longer", 0),
            )
            if "transforms" in changes:
                place.transform_descriptors = changes["transforms"]
            storage[MetadataIndex("w", offsets)] = place
    properties = TensorProperties(dtype=changes.get("dtype", values.dtype))
    size = torch.Size(changes.get("size", shape))
    metadata = Metadata({"w": TensorStorageMetadata(properties, size, chunks)}, None, storage)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    return folder


QUARTERS = [((0, 0), (3, 2)), ((0, 2), (3, 3)), ((3, 0), (2, 2)), ((3, 2), (2, 3))]


@pytest.mark.parametrize("padding", [0, 1, 7])
def test_shards_of_a_tensor_are_put_together(padding, tmp_path):
    folder = write(tmp_path / "dcp", (5, 5), QUARTERS, padding=padding)
    assert torch.equal(read(folder).tensors["w"], torch.arange(25.0).reshape(5, 5))


def test_the_parts_of_the_state_are_told_apart(net, tmp_path):
    folder = WRITERS["distributed"](net, tmp_path / "dcp")
    checkpoint = read(folder)
    assert list(checkpoint.tensors) == list(net.state_dict())
    assert (checkpoint.info.training_step, checkpoint.info.learning_rate) == (STEP, RATE)
    assert inspect(folder).optimiser


def test_a_state_that_is_not_nested_is_the_weights(net, tmp_path):
    save_distributed(net.state_dict(), tmp_path / "dcp")
    assert set(read(tmp_path / "dcp").tensors) == set(net.state_dict())


def test_the_hash_covers_metadata_and_shards(net, tmp_path):
    folder = WRITERS["distributed"](net, tmp_path / "dcp")
    first = describe(folder).sha256
    shard = folder / "__0_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    assert describe(folder).sha256 != first


@pytest.mark.parametrize(
    ("boxes", "changes", "said"),
    [
        (QUARTERS[:3], {}, "do not make up"),
        ([QUARTERS[0], *QUARTERS[:3]], {}, "overlap"),
        ([((0, 0), (5, 3)), ((0, 1), (5, 2))], {}, "overlap"),
        (QUARTERS, {"size": (5, 4)}, "outside its tensor"),
        (QUARTERS, {"size": (5, 6)}, "do not make up"),
        (QUARTERS, {"size": (2**40, 2**40)}, "do not make up"),
        ([((0, 0), (5, 5))], {"size": (25,)}, "outside its tensor"),
        (QUARTERS, {"dtype": torch.float64}, "another shape or type"),
        (QUARTERS, {"file": "../outside.distcp"}, "outside the folder"),
        (QUARTERS, {"file": "/etc/passwd"}, "outside the folder"),
        (QUARTERS, {"file": "absent.distcp"}, "missing"),
        (QUARTERS, {"shift": 10**9}, "beyond"),
        (QUARTERS, {"longer": 2**50}, "beyond"),
        (QUARTERS, {"shift": -1}, "where a shard is"),
        (QUARTERS, {"shift": 3}, ""),
        (QUARTERS, {"transforms": ["zstd"]}, "compressed or encrypted"),
    ],
)
def test_metadata_that_lie_are_refused(boxes, changes, said, tmp_path):
    folder = write(tmp_path / "dcp", (5, 5), boxes, **changes)
    with pytest.raises(CheckpointError) as error:
        read(folder)
    assert said in error.value.seen
    assert len(error.value.lines()) == 3


def test_one_shard_used_for_many_tensors_is_not_expanded_without_end(tmp_path):
    folder = write(tmp_path / "dcp", (500, 500), [((0, 0), (250, 500)), ((250, 0), (250, 500))])
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    (kind,) = metadata.state_dict_metadata.values()
    places = list(metadata.storage_data.items())
    for copy in range(100):
        metadata.state_dict_metadata[f"w{copy}"] = kind
        for index, place in places:
            metadata.storage_data[MetadataIndex(f"w{copy}", index.offset)] = place
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointError) as error:
        read(folder)
    assert "over and over" in error.value.seen


def test_places_that_overlap_are_not_read_without_end(tmp_path):
    folder = write(tmp_path / "dcp", (500, 500), [((0, 0), (500, 500))], padding=100)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    (kind,) = metadata.state_dict_metadata.values()
    ((index, place),) = metadata.storage_data.items()
    for more in range(100):
        metadata.state_dict_metadata[f"w{more}"] = kind
        metadata.storage_data[MetadataIndex(f"w{more}", index.offset)] = _StorageInfo(
            place.relative_path, place.offset, place.length + more
        )
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointError) as error:
        read(folder)
    assert "over and over" in error.value.seen


RANK = """
import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp, warnings
warnings.simplefilter("ignore")
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
whole = torch.arange(35.0).reshape(7, 5)
state = {"model": {"w": distribute_tensor(whole, mesh, [Shard(0)]), "b": torch.ones(3)}, "step": 4}
dcp.save(state, checkpoint_id=folder + "/dcp")
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_checkpoint_that_two_processes_wrote_is_read_by_one(tmp_path):
    command = [sys.executable, "-c", RANK]
    ranks = [subprocess.Popen([*command, str(rank), str(tmp_path)]) for rank in range(2)]
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
    checkpoint = read(tmp_path / "dcp")
    assert torch.equal(checkpoint.tensors["w"], torch.arange(35.0).reshape(7, 5))
    assert checkpoint.tensors["b"].tolist() == [1.0, 1.0, 1.0]
    assert checkpoint.info.training_step == 4
