"""Whatever the bytes are, a checkpoint is read or refused: no other exception, no great memory."""

from __future__ import annotations

import io
import json
import pickle
import resource
import shutil
import struct
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from saved_checkpoints import make_net, make_optimiser, save_distributed

from landscape_cli.checkpoints import inspect
from landscape_cli.errors import LandscapeError

BOUNDED = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


def _saved(tree, **options) -> bytes:
    buffer = io.BytesIO()
    torch.save(tree, buffer, **options)
    return buffer.getvalue()


def _nested():
    net = make_net()
    return {"step": 3, "model": net.state_dict(), "optimizer": make_optimiser(net).state_dict()}


SOUND = {
    "zip": lambda: _saved(_nested()),
    "legacy": lambda: _saved(_nested(), _use_new_zipfile_serialization=False),
    "module": lambda: _saved(make_net()),
    "bare": lambda: pickle.dumps(make_net().state_dict()),
    "safetensors": lambda: save({"a": torch.ones(3), "b": torch.zeros(2, 2)}, {"x": "y"}),
}


class Files(dict[str, bytes]):
    """Files by kind, which hypothesis need not print."""

    def __repr__(self) -> str:
        return ", ".join(self)


@pytest.fixture(scope="module")
def sound() -> Files:
    return Files({name: make() for name, make in SOUND.items()})


@st.composite
def damage(draw):
    """A few cuts, insertions and changed bytes, at places given as fractions."""
    kinds = st.sampled_from(["flip", "cut", "insert", "truncate", "repeat"])
    places = st.floats(0, 1, exclude_max=True)
    return draw(st.lists(st.tuples(kinds, places, st.binary(min_size=1, max_size=9)), min_size=1))


def damaged(data: bytes, changes) -> bytes:
    for kind, place, content in changes:
        at = int(place * len(data))
        if kind == "flip":
            data = data[:at] + content + data[at + len(content) :]
        elif kind == "cut":
            data = data[:at] + data[at + len(content) :]
        elif kind == "insert":
            data = data[:at] + content + data[at:]
        elif kind == "truncate":
            data = data[:at]
        else:
            data = data[:at] + data[at : at + 200] + data[at:]
    return data


def examine(path: Path) -> None:
    """Read everything there is; fail on anything but a `LandscapeError` of three lines."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        inspect(path).to_dict()
    except LandscapeError as error:
        assert len(error.lines()) == 3
        assert all(len(text) < 1000 and text.isprintable() for _, text in error.lines())
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 300_000, "kilobytes"


def examine_bytes(data: bytes, suffix: str = ".pt") -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"fuzzed{suffix}"
        path.write_bytes(data)
        examine(path)


@pytest.mark.parametrize("kind", list(SOUND))
@given(changes=damage())
@BOUNDED
def test_damaged_files_are_read_or_refused(kind, sound, changes):
    examine_bytes(damaged(sound[kind], changes))


@pytest.mark.parametrize("kind", list(SOUND))
def test_every_truncation_is_read_or_refused(kind, sound):
    data = sound[kind]
    for length in range(0, len(data), max(1, len(data) // 60)):
        examine_bytes(data[:length])


@given(data=st.binary(max_size=200), suffix=st.sampled_from([".pt", ".safetensors", ".ckpt"]))
@BOUNDED
def test_random_bytes_are_refused(data, suffix):
    examine_bytes(data, suffix)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "F64", "I8", "F4", "U16", "BOOL", "C64", "F8_E8M0", "x"]),
        "shape": st.lists(st.integers(-1, 4) | st.integers(0, 2**64), max_size=4) | JSON,
        "data_offsets": st.lists(st.integers(0, 64) | st.integers(-1, 2**65), max_size=3) | JSON,
    },
)


@given(
    header=st.dictionaries(st.text(max_size=4) | st.just("__metadata__"), ENTRY | JSON, max_size=4),
    extra=st.integers(-3, 3) | st.integers(0, 2**63),
    body=st.binary(max_size=64),
)
@BOUNDED
def test_safetensors_headers_of_any_kind_are_read_or_refused(header, extra, body):
    text = json.dumps(header).encode()
    length = max(0, min(len(text) + extra, 2**64 - 1))
    examine_bytes(struct.pack("<Q", length) + text + body, ".safetensors")


NAMES = st.sampled_from(
    [
        *("torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter", "torch Size"),
        *("torch FloatStorage", "torch float32", "collections OrderedDict", "os system"),
        *("torch._tensor _rebuild_from_type_v2", "numpy.core.multiarray scalar", "numpy dtype"),
        *("_codecs encode", "torch.storage _load_from_bytes", "torch.nn.parameter Parameter"),
        *("torch._utils _rebuild_tensor_v3", "torch._utils _rebuild_sparse_tensor", "x.y Module"),
        *("torch._utils _rebuild_qtensor", "builtins set", "builtins bytes"),
    ]
)
INSTRUCTION = st.one_of(
    st.sampled_from(list(b"(N\x88\x89])}e\x85\x86\x87tRbsu20a1dlQ\x8f\x90\x94\x81")).map(
        lambda code: bytes([code])
    ),
    NAMES.map(lambda name: b"c" + name.replace(" ", "\n").encode() + b"\n"),
    st.integers(0, 5).map(lambda n: b"h" + bytes([n])),
    st.integers(0, 5).map(lambda n: b"q" + bytes([n])),
    st.integers(-(2**31), 2**31 - 1).map(lambda n: b"J" + struct.pack("<i", n)),
    st.sampled_from(["storage", "0", "cpu", "_modules", "_parameters", "model", "w"]).map(
        lambda text: b"X" + struct.pack("<I", len(text)) + text.encode()
    ),
    st.binary(max_size=8).map(lambda data: b"C" + bytes([len(data)]) + data),
)  # fmt: skip


@given(program=st.lists(INSTRUCTION, max_size=60), archived=st.booleans())
@settings(BOUNDED, max_examples=300)
def test_programs_of_any_kind_are_read_or_refused(program, archived):
    data = b"\x80\x02}X\x01\x00\x00\x00wX\x05\x00\x00\x00model(" + b"".join(program) + b"lss."
    if archived:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            file.writestr("a/data.pkl", data)
            file.writestr("a/data/0", bytes(16))
        data = buffer.getvalue()
    examine_bytes(data)


@pytest.fixture(scope="module")
def distributed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dcp")
    save_distributed(_nested(), folder)
    return folder


@given(changes=damage(), shard=st.booleans())
@settings(BOUNDED, max_examples=60)
def test_damaged_distributed_folders_are_read_or_refused(distributed, changes, shard):
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(distributed, copy)
        name = "__0_0.distcp" if shard else ".metadata"
        (copy / name).write_bytes(damaged((copy / name).read_bytes(), changes))
        examine(copy)


@given(index=JSON | st.fixed_dictionaries({"weight_map": JSON}))
@BOUNDED
def test_indices_of_any_kind_are_read_or_refused(index):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors.index.json"
        path.write_text(json.dumps(index))
        examine(path)


@given(state=JSON, config=JSON)
@settings(BOUNDED, max_examples=40)
def test_json_of_any_kind_beside_weights_is_no_obstacle(state, config):
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "model.safetensors").write_bytes(save({"a": torch.ones(3)}))
        for name, value in (("trainer_state.json", state), ("config.json", config)):
            with suppress(UnicodeEncodeError):
                (home / name).write_text(json.dumps(value))
        assert inspect(home).tensors[0].name == "a"
