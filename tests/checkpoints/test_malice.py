"""Nothing in a checkpoint is executed, and no size in it is believed."""

from __future__ import annotations

import builtins
import functools
import io
import json
import os
import pathlib
import pickle
import resource
import struct
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from saved_checkpoints import make_net, save_distributed

from landscape_cli.checkpoints import describe, find, inspect, read
from landscape_cli.errors import CheckpointError


class Call:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments, state=None) -> None:
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.parts

    def __call__(self):
        """Be callable, as what a call returns must be to be called."""


class Trap:
    """Creates a file when its state is set, or when it is hashed, compared or called."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __setstate__(self, state) -> None:
        state["canary"].touch()


def touch(path: str) -> None:
    Path(path).touch()


def payloads(canary: Path) -> dict[str, object]:
    code = f"__import__('pathlib').Path({str(canary)!r}).touch()"
    return {
        "os.system": Call(os.system, f"touch {canary}"),
        "eval": Call(eval, code),
        "exec": Call(builtins.exec, code),
        "a method": Call(pathlib.Path.touch, canary),
        "a function of the user's": Call(touch, str(canary)),
        "partial": Call(Call(functools.partial, touch, str(canary))),
        "getattr": Call(Call(getattr, pathlib.Path(canary), "touch")),
        "__setstate__": Trap(canary),
        "a state for a class": Call(Trap, canary, state={"canary": canary}),
        "torch.load": Call(torch.load, str(canary)),
        "a hook": Call(torch.nn.Module, state={"__setstate__": Call(touch, str(canary))}),
    }


@pytest.fixture
def canary(tmp_path) -> Path:
    return tmp_path / "canary"


PAYLOADS = list(payloads(Path("x")))
RUN_BY_PICKLE = [name for name in PAYLOADS if name not in ("torch.load", "a hook", "a method")]


@pytest.mark.parametrize("payload", RUN_BY_PICKLE)
def test_the_payloads_do_run_where_pickle_is_trusted(payload, canary):
    data = pickle.dumps(payloads(canary)[payload])
    try:
        pickle.loads(data)
    except TypeError:
        assert canary.exists()
    assert canary.exists()


def _zip(tree, folder: Path) -> Path:
    torch.save(tree, folder / "evil.pt")
    return folder / "evil.pt"


def _legacy(tree, folder: Path) -> Path:
    torch.save(tree, folder / "evil.pth", _use_new_zipfile_serialization=False)
    return folder / "evil.pth"


def _bare(tree, folder: Path) -> Path:
    (folder / "evil.bin").write_bytes(pickle.dumps(tree))
    return folder / "evil.bin"


def _lightning(tree, folder: Path) -> Path:
    tree = {"pytorch-lightning_version": "2", "hyper_parameters": tree, **tree}
    torch.save(tree, folder / "evil.ckpt")
    return folder / "evil.ckpt"


def _whole_module(tree, folder: Path) -> Path:
    module = torch.nn.Linear(2, 2)
    module.extra = tree
    torch.save(module, folder / "evil.pt")
    return folder / "evil.pt"


def _hugging_face(tree, folder: Path) -> Path:
    home = folder / "hf"
    home.mkdir()
    (home / "config.json").write_text("{}")
    torch.save(tree, home / "pytorch_model.bin")
    for name in ("optimizer.pt", "scheduler.pt", "training_args.bin"):
        torch.save(tree, home / name)
    return home


def _distributed_value(tree, folder: Path) -> Path:
    home = folder / "dcp"
    save_distributed({"model": tree["state_dict"], "extra": tree["evil"]}, home)
    return home


def _distributed_metadata(tree, folder: Path) -> Path:
    home = folder / "dcp"
    save_distributed({"model": tree["state_dict"]}, home)
    metadata = pickle.loads((home / ".metadata").read_bytes())
    metadata.planner_data["evil"] = tree["evil"]
    metadata.storage_meta = tree["evil"]
    (home / ".metadata").write_bytes(pickle.dumps(metadata))
    return home


CONTAINERS = {
    "zip": _zip,
    "legacy": _legacy,
    "bare": _bare,
    "lightning": _lightning,
    "whole module": _whole_module,
    "hugging face": _hugging_face,
    "distributed value": _distributed_value,
    "distributed metadata": _distributed_metadata,
}


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("container", list(CONTAINERS))
def test_a_malicious_pickle_is_rescued_without_being_run(container, payload, canary, tmp_path):
    tree = {"evil": payloads(canary)[payload], "state_dict": make_net().state_dict()}
    path = CONTAINERS[container](tree, tmp_path)
    for use in (describe, inspect, read):
        use(path)
    tensors = read(path).tensors
    wanted = 2 if container == "whole module" else len(tree["state_dict"])
    assert len(tensors) == wanted
    find([path])
    assert not canary.exists()


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("container", ["zip", "legacy", "bare"])
def test_a_malicious_pickle_without_weights_is_refused(container, payload, canary, tmp_path):
    path = CONTAINERS[container](payloads(canary)[payload], tmp_path)
    with pytest.raises(CheckpointError) as error:
        read(path)
    assert len(error.value.lines()) == 3
    assert not canary.exists()


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_call_in_the_place_of_a_tensor_is_left_out(payload, canary, tmp_path):
    evil = payloads(canary)[payload]
    path = _zip({"weight": torch.ones(2), "other": evil}, tmp_path)
    assert set(read(path).tensors) == {"weight"}
    assert not canary.exists()


class Persistent:
    """Pickles as a persistent identifier."""

    def __init__(self, identifier) -> None:
        self.identifier = identifier


class _Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return value.identifier if isinstance(value, Persistent) else None


def _pickled(value) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=2).dump(value)
    return buffer.getvalue()


def storage(count=4, key="0", kind=torch.FloatStorage, location="cpu") -> Persistent:
    return Persistent(("storage", kind, key, location, count))


def tensor(source, offset=0, size=(4,), stride=(1,)) -> Call:
    rebuild = torch._utils._rebuild_tensor_v2
    return Call(rebuild, source, offset, size, stride, False, OrderedDict())


def archive(value, folder: Path, data: bytes = bytes(16)) -> Path:
    """Write what torch.save would, with the storage as claimed and the bytes as given."""
    path = folder / "lies.pt"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", _pickled(value))
        file.writestr("archive/data/0", data)
        file.writestr("archive/version", "3")
    return path


LIES = {
    "a storage larger than the file": tensor(storage(2**40), size=(2**40,)),
    "a storage of negative size": tensor(storage(-1)),
    "a storage of no size": tensor(storage("four")),
    "a storage that is not there": tensor(storage(key="../../etc/passwd")),
    "a storage that is text": tensor("storage"),
    "a storage of unknown type": tensor(storage(kind=os.system)),
    "a persistent number": tensor(Persistent(7)),
    "a persistent list": tensor(Persistent(("storage",))),
    "nested persistent ids": tensor(Persistent(("storage", storage(), storage(), "cpu", 4))),
    "a module in a persistent id": tensor(Persistent(("module", os.system, "x", "y"))),
    "a shape larger than its storage": tensor(storage(), size=(5,)),
    "an offset beyond its storage": tensor(storage(), offset=1),
    "a negative offset": tensor(storage(), offset=-4),
    "a negative size": tensor(storage(), size=(-1,)),
    "a negative stride": tensor(storage(), size=(2,), stride=(-1,)),
    "a huge stride": tensor(storage(), size=(2,), stride=(2**62,)),
    "a repeated element": tensor(storage(), size=(2**40,), stride=(0,)),
    "a repeated box": tensor(storage(), size=(2**20, 2**20), stride=(0, 0)),
    "sizes that overflow": tensor(storage(), size=(2**31, 2**31, 2**31), stride=(0, 0, 0)),
    "an empty tensor of huge sizes": tensor(storage(), size=(0, 2**62), stride=(1, 1)),
    "a thousand dimensions": tensor(storage(), size=(1,) * 1000, stride=(1,) * 1000),
    "fewer strides than sizes": tensor(storage(), size=(2, 2), stride=(1,)),
    "sizes that are text": tensor(storage(), size=("4",)),
    "sizes that are tensors": tensor(storage(), size=(torch.Size,)),
    "no arguments": Call(torch._utils._rebuild_tensor_v2),
    "itself in itself": Call(torch._tensor._rebuild_from_type_v2,
        torch._tensor._rebuild_from_type_v2, torch.Tensor, (), None),
}  # fmt: skip


@pytest.mark.parametrize("lie", list(LIES))
def test_a_size_that_is_a_lie_is_refused_without_allocating(lie, tmp_path):
    path = archive({"w": LIES[lie]}, tmp_path)
    before = _peak_bytes()
    with pytest.raises(CheckpointError) as error:
        read(path)
    assert len(error.value.lines()) == 3
    assert _peak_bytes() - before < 100e6


def test_the_archive_of_these_lies_is_read_when_it_tells_the_truth(tmp_path):
    path = archive({"w": tensor(storage())}, tmp_path, data=struct.pack("<4f", 1, 2, 3, 4))
    assert read(path).tensors["w"].tolist() == [1.0, 2.0, 3.0, 4.0]


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("count", [2**40, -1, 3])
def test_a_legacy_file_whose_storage_lies_about_its_size_is_refused(count, tmp_path):
    torch.save({"w": torch.ones(4)}, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    data = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "a.pt").write_bytes(data[:-24] + struct.pack("<q", count) + data[-16:])
    with pytest.raises(CheckpointError):
        read(tmp_path / "a.pt")


def test_numbers_of_another_byte_order_are_refused(tmp_path):
    path = archive({"w": tensor(storage())}, tmp_path)
    other = "big" if sys.byteorder == "little" else "little"
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("archive/byteorder", other)
    with pytest.raises(CheckpointError, match="damaged") as error:
        read(path)
    assert f"{other}-endian" in error.value.seen


def test_a_compressed_archive_is_refused_rather_than_expanded(tmp_path):
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", bytes(50_000_000))
    with pytest.raises(CheckpointError) as error:
        read(path)
    assert "compressed" in error.value.seen


def test_an_archive_whose_members_overlap_is_refused(tmp_path):
    path = archive({"w": tensor(storage())}, tmp_path, data=bytes(5000))
    with zipfile.ZipFile(path, "a") as file:
        (original,) = (info for info in file.infolist() if info.filename == "archive/data/0")
        for copy in range(50):
            twin = zipfile.ZipInfo(f"archive/data/x{copy}")
            twin.header_offset, twin.CRC = original.header_offset, original.CRC
            twin.file_size = twin.compress_size = original.file_size
            file.filelist.append(twin)
            file.NameToInfo[twin.filename] = twin
        file._didModify = True
    with zipfile.ZipFile(path) as file:
        assert len(file.infolist()) == 53
    with pytest.raises(CheckpointError) as error:
        read(path)
    assert "overlap" in error.value.seen


@pytest.mark.parametrize("size", [2**63 - 1, 2**40, 1 << 26])
def test_a_safetensors_header_that_lies_about_its_length_is_refused(size, tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", size) + b'{"t":' + bytes(100))
    before = _peak_bytes()
    with pytest.raises(CheckpointError):
        read(path)
    assert _peak_bytes() - before < 100e6


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]},
        {"dtype": "F32", "shape": [4], "data_offsets": [0, 2**60]},
        {"dtype": "F32", "shape": [4], "data_offsets": [16, 0]},
        {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]},
        {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [2**33, 2**33], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": "four", "data_offsets": [0, 16]},
    ],
)
def test_a_safetensors_entry_that_lies_is_refused(entry, tmp_path):
    header = json.dumps({"t": entry}).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    with pytest.raises(CheckpointError):
        read(path)


def test_names_with_control_characters_are_shown_escaped(tmp_path):
    torch.save({"\x1b[31mred": 3, "epoch\n": 1}, tmp_path / "a.pt")
    with pytest.raises(CheckpointError) as error:
        read(tmp_path / "a.pt")
    assert error.value.seen.isprintable()
    assert "\\x1b[31mred" in error.value.seen
