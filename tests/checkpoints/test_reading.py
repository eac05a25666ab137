from __future__ import annotations

import hashlib
import json
import os
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from saved_checkpoints import RATE, STEP, WRITERS, make_net, make_optimiser

from landscape_cli.checkpoints import describe, load_into, read
from landscape_cli.errors import CheckpointError

TELLS_STEP = {"safetensors", "legacy, protocol 4", "nested", "lightning", "hugging face"}
TELLS_STEP |= {"distributed"}
KINDS = {
    "safetensors": "safetensors",
    "sharded safetensors": "safetensors",
    "sharded bin": "hugging-face",
    "lightning": "lightning",
    "hugging face": "hugging-face",
    "distributed": "distributed",
}


def test_the_same_weights_come_bit_for_bit_out_of_every_format(net, written):
    copy = make_net(seed=1)
    load_into(copy, read(written))
    expected, loaded = net.state_dict(), copy.state_dict()
    assert list(loaded) == list(expected)
    assert all(torch.equal(loaded[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", list(WRITERS))
def test_step_and_learning_rate_are_read_where_the_format_keeps_them(kind, net, tmp_path):
    info = describe(WRITERS[kind](net, tmp_path))
    assert info.training_step == (STEP if kind in TELLS_STEP else -1)
    assert info.learning_rate == (RATE if kind in TELLS_STEP else None)
    assert info.format == KINDS.get(kind, "torch")


def test_describing_gives_what_reading_gives(written):
    assert describe(written) == read(written).info


def test_the_hash_of_a_file_is_that_of_its_bytes(net, tmp_path):
    path = WRITERS["plain"](net, tmp_path)
    assert describe(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_hash_follows_a_file_that_is_written_again(net, tmp_path):
    path = WRITERS["plain"](net, tmp_path)
    first = describe(path).sha256
    torch.save(make_net(seed=5).state_dict(), path)
    assert describe(path).sha256 != first


def test_the_hash_of_a_folder_covers_every_shard_by_name(net, tmp_path):
    folder = WRITERS["sharded safetensors"](net, tmp_path)
    first = describe(folder).sha256
    shards = sorted(folder.glob("*.safetensors"))
    digests = [f"{s.name}\0{hashlib.sha256(s.read_bytes()).hexdigest()}\n" for s in shards]
    assert first == hashlib.sha256("".join(digests).encode()).hexdigest()


def test_ties_in_a_torch_file_share_their_memory(net, tmp_path):
    tensors = read(WRITERS["plain"](net, tmp_path)).tensors
    assert tensors["encode.weight"].data_ptr() == tensors["decode.weight"].data_ptr()


@pytest.mark.parametrize("kind", ["safetensors", "plain", "legacy"])
def test_writing_to_the_tensors_does_not_reach_the_file(kind, net, tmp_path):
    path = WRITERS[kind](net, tmp_path)
    before = path.read_bytes()
    for tensor in read(path).tensors.values():
        tensor.zero_()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16),
        *(torch.bool, torch.complex64),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors"])
def test_every_element_type_survives(dtype, kind, tmp_path):
    values = (torch.arange(24).reshape(4, 6) % 5).to(dtype)
    path = tmp_path / "a.file"
    if kind == "safetensors":
        save_file({"t": values}, path)
    else:
        torch.save({"t": values}, path, _use_new_zipfile_serialization=kind == "zip")
    loaded = read(path).tensors["t"]
    assert loaded.dtype == dtype
    assert torch.equal(loaded.contiguous().view(torch.uint8), values.view(torch.uint8))


def test_views_keep_offset_and_stride(tmp_path):
    base = torch.arange(60.0).reshape(5, 12)
    views = {"t": base.t(), "row": base[2], "columns": base[:, 3:7], "step": base[::2, ::3]}
    views |= {"scalar": base[4, 11], "empty": base[:0], "wide": base[0].expand(3, 12)}
    for zipped in (True, False):
        torch.save(views, tmp_path / "views.pt", _use_new_zipfile_serialization=zipped)
        loaded = read(tmp_path / "views.pt").tensors
        assert all(torch.equal(loaded[name], view) for name, view in views.items())
        assert loaded["t"].stride() == base.t().stride()


def test_conjugate_and_negative_views_are_resolved(tmp_path):
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    torch.save({"c": numbers.conj()}, tmp_path / "c.pt")
    torch.save({"n": numbers.conj().imag}, tmp_path / "n.pt")
    assert read(tmp_path / "c.pt").tensors["c"].tolist() == [1 - 2j, 3 + 4j]
    assert read(tmp_path / "n.pt").tensors["n"].tolist() == [-2.0, 4.0]


def test_other_weights_can_be_chosen(net, tmp_path):
    averaged = {name: tensor + 1 for name, tensor in net.state_dict().items()}
    torch.save({"state_dict": net.state_dict(), "state_dict_ema": averaged}, tmp_path / "a.pt")
    assert read(tmp_path / "a.pt").variants == ("ema",)
    chosen = read(tmp_path / "a.pt", weights="ema").tensors
    assert all(torch.equal(chosen[name], averaged[name]) for name in averaged)


def test_weights_that_are_not_there_are_an_error_that_names_those_that_are(net, tmp_path):
    path = WRITERS["plain"](net, tmp_path)
    with pytest.raises(CheckpointError, match="no weights named 'ema'") as error:
        read(path, weights="ema")
    assert "default" in error.value.seen


def test_averaged_weights_of_a_hugging_face_folder_are_a_variant(net, tmp_path):
    folder = WRITERS["hugging face"](net, tmp_path)
    save_file({"t": torch.ones(2)}, folder / "model.ema.safetensors")
    assert read(folder, weights="ema").tensors["t"].tolist() == [1.0, 1.0]


def test_a_scripted_module_gives_its_tensors(net, tmp_path):
    path = tmp_path / "scripted.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that scripting is deprecated
        torch.jit.trace(net.eval(), torch.zeros(1, 1, 6, 6)).save(path)
    tensors = read(path).tensors
    assert set(net.state_dict()) <= set(tensors)
    assert all(torch.equal(tensors[name], value) for name, value in net.state_dict().items())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        b"hello",
        b"PK\x03\x04",
        b"PK\x05\x06" + bytes(18),
        b"\x80\x02.",
        b"\x89HDF\r\n",
        b"cos\n\\X\n.",
    ],
    ids=repr,
)
@pytest.mark.parametrize("suffix", [".pt", ".safetensors", ".ckpt"])
def test_what_is_no_checkpoint_is_an_error_of_three_lines(content, suffix, tmp_path):
    path = tmp_path / f"broken{suffix}"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as error:
        read(path)
    assert [label for label, _ in error.value.lines()] == ["error", "seen", "try"]
    assert str(path) in error.value.seen


@pytest.mark.parametrize("missing", ["nothing.pt", "folder/nothing.safetensors"])
def test_a_file_that_is_not_there_is_said_to_be_missing(missing, tmp_path):
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        read(tmp_path / missing)


def test_a_file_that_may_not_be_read_is_an_error(net, tmp_path, monkeypatch):
    path = WRITERS["plain"](net, tmp_path)

    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CheckpointError, match="cannot be opened") as error:
        read(path)
    assert "Permission denied" in error.value.seen


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("kind", ["zip", "safetensors"])
def test_large_files_are_mapped_rather_than_read(kind, tmp_path):
    path = tmp_path / "large.file"
    tree = {"w": torch.zeros(2**24)}
    torch.save(tree, path) if kind == "zip" else save_file(tree, path)
    del tree
    before = _resident_bytes()
    tensors = read(path).tensors
    assert _resident_bytes() - before < 2**24, "a quarter of the tensor"
    assert tensors["w"].shape == (2**24,)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_an_archive_that_is_not_from_torch_says_so(tmp_path):
    import numpy as np

    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    (tmp_path / "a.npz").rename(tmp_path / "a.pt")
    with pytest.raises(CheckpointError) as error:
        read(tmp_path / "a.pt")
    assert "data.pkl" in error.value.seen


def test_a_checkpoint_without_tensors_says_what_it_found(tmp_path):
    torch.save({"epoch": 3, "accuracy": [0.1, 0.2]}, tmp_path / "a.pt")
    with pytest.raises(CheckpointError) as error:
        read(tmp_path / "a.pt")
    assert "epoch, accuracy" in error.value.seen


@pytest.mark.parametrize("kind", ["sparse", "quantised"])
def test_tensors_of_kinds_that_cannot_be_probed_are_named(kind, tmp_path):
    weight = torch.eye(3)
    if kind == "sparse":
        odd = weight.to_sparse()
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that making them is deprecated
            odd = torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8)
    torch.save({"w": odd, "b": weight}, tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match=f"holds a {kind} tensor"):
        read(tmp_path / "a.pt")


def test_a_trainer_state_that_cannot_be_read_costs_only_the_step(net, tmp_path):
    folder = WRITERS["hugging face"](net, tmp_path)
    (folder / "trainer_state.json").write_text("{")
    (folder / "optimizer.pt").write_bytes(b"nonsense")
    checkpoint = read(folder)
    assert checkpoint.info.training_step == -1
    assert checkpoint.info.learning_rate is None
    assert [note.split()[0] for note in checkpoint.notes] == ["trainer_state.json", "optimizer.pt"]


def test_the_logged_learning_rate_serves_where_no_optimiser_is_kept(net, tmp_path):
    folder = WRITERS["hugging face"](net, tmp_path)
    (folder / "optimizer.pt").unlink()
    history = [{"learning_rate": 0.5, "loss": 1}, {"learning_rate": 0.25}, {"eval_loss": 2}]
    state = {"global_step": 8, "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    assert describe(folder).learning_rate == 0.25


def test_a_weight_file_named_alone_uses_the_trainer_state_beside_it(net, tmp_path):
    folder = WRITERS["hugging face"](net, tmp_path)
    info = describe(folder / "model.safetensors")
    assert (info.training_step, info.learning_rate) == (STEP, RATE)


@pytest.mark.parametrize(
    ("metadata", "step", "rate"),
    [
        ({"training_step": "7", "learning_rate": "1e-3"}, 7, 1e-3),
        ({"training_step": "seven", "learning_rate": "fast"}, -1, None),
        ({"training_step": "-4", "learning_rate": "-1"}, -1, None),
        ({"training_step": str(2**63), "learning_rate": "nan"}, -1, None),
        ({"training_step": "9" * 5000, "learning_rate": "inf"}, -1, None),
        ({"training_step": "1.5", "learning_rate": "0"}, -1, None),
        ({}, -1, None),
    ],
)
def test_metadata_that_mean_nothing_are_unknown(metadata, step, rate, tmp_path):
    save_file({"t": torch.ones(1)}, tmp_path / "a.safetensors", metadata=metadata)
    info = describe(tmp_path / "a.safetensors")
    assert (info.training_step, info.learning_rate) == (step, rate)


def test_an_optimiser_alone_is_no_checkpoint(net, tmp_path):
    torch.save(make_optimiser(net).state_dict(), tmp_path / "opt.pt")
    with pytest.raises(CheckpointError) as error:
        read(tmp_path / "opt.pt")
    assert "param_groups" in error.value.seen


def test_scalars_saved_as_tensors_tell_step_and_rate(net, tmp_path):
    groups = [{"lr": torch.tensor(0.5), "params": [0]}]
    saved = {
        "iteration": torch.tensor(9),
        "model": net.state_dict(),
        "opt": {"param_groups": groups},
    }
    torch.save(saved, tmp_path / "a.pt")
    info = describe(tmp_path / "a.pt")
    assert (info.training_step, info.learning_rate) == (9, 0.5)
