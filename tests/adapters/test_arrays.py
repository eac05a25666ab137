"""Arrays in files, as data sets."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from landscape_cli import batches
from landscape_cli.adapters.arrays import open_npz, open_safetensors
from landscape_cli.errors import AdapterError

X = np.random.default_rng(0).normal(size=(7, 3, 2))
Y = np.arange(7)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npz_samples_are_those_that_numpy_reads(tmp_path: Path, save, order: str) -> None:
    path = tmp_path / "a.npz"
    save(path, x=np.asarray(X, order=order), y=Y)
    data = open_npz(str(path))
    assert len(data) == 7
    for index, (x, y) in enumerate(data[i] for i in range(7)):
        np.testing.assert_array_equal(x.numpy(), X[index])
        assert (y.item(), y.dtype) == (index, torch.int64)


def test_arrays_stored_without_compression_are_mapped(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    assert isinstance(open_npz(str(tmp_path / "a.npz")).inputs, np.memmap)


@pytest.mark.parametrize(
    ("stored", "given_back"),
    [
        ("float16", torch.float16),
        (">f4", torch.float32),
        ("uint8", torch.uint8),
        ("uint16", torch.int32),
        (">i8", torch.int64),
        ("bool", torch.bool),
    ],
)
def test_number_types_become_tensors(tmp_path: Path, stored: str, given_back) -> None:
    values = np.array([[0, 1], [1, 0]]).astype(stored)
    np.savez(tmp_path / "a.npz", x=values, y=Y[:2])
    x, _ = open_npz(str(tmp_path / "a.npz"))[0]
    assert x.dtype == given_back
    assert x.tolist() == [0, 1]


def test_safetensors_samples_are_the_tensors_rows(tmp_path: Path) -> None:
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    save_file({"inputs": x, "labels": y}, tmp_path / "a.safetensors")
    data = open_safetensors(str(tmp_path / "a.safetensors"), x="inputs", y="labels")
    assert all(torch.equal(data[i][0], x[i]) and data[i][1] == i for i in range(7))


def test_both_formats_give_the_same_batches(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    save_file({"x": torch.from_numpy(X), "y": torch.from_numpy(Y)}, tmp_path / "a.safetensors")
    drawn = [
        batches.draw(data, 3, 2, seed=0).content_hash()
        for data in (
            open_npz(str(tmp_path / "a.npz")),
            open_safetensors(str(tmp_path / "a.safetensors")),
        )
    ]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    ("arrays", "options", "what", "seen"),
    [
        ({"a": X, "y": Y}, {}, "a.npz has no array 'x'", "a, y"),
        ({"x": X, "y": Y}, {"y": "labels"}, "a.npz has no array 'labels'", "x, y"),
        ({"x": X, "y": Y[:5]}, {}, "there is not one target per input", "7 inputs, 5 targets"),
        ({"x": X[:0], "y": Y[:0]}, {}, "the data is empty", "a.npz"),
        ({"x": np.float64(1), "y": Y}, {}, "the inputs are a single number", "a.npz"),
        ({"x": np.array(["a"] * 7), "y": Y}, {}, "'x' does not hold numbers", "<U1"),
        ({"x": X, "y": np.array([{}] * 7)}, {}, "'y' does not hold numbers", "object"),
        ({"x": X * 1j, "y": Y}, {}, "'x' does not hold numbers", "complex128"),
    ],
)
def test_what_is_wrong_with_an_npz_is_told(
    tmp_path: Path, arrays: dict, options: dict, what: str, seen: str
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(AdapterError) as caught:
        open_npz(str(tmp_path / "a.npz"), **options)
    assert what in caught.value.what
    assert seen in caught.value.seen
    assert caught.value.hint


@pytest.mark.parametrize(
    ("open_file", "kind"), [(open_npz, "npz"), (open_safetensors, "safetensors")]
)
def test_files_that_are_missing_or_damaged_are_told(tmp_path: Path, open_file, kind: str) -> None:
    with pytest.raises(AdapterError, match=f"the {kind} file does not exist"):
        open_file(str(tmp_path / "gone"))
    for content in (b"", b"PK\x03\x04 not a zip", b"\xff" * 100):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(AdapterError, match=f"the {kind} file cannot be read"):
            open_file(str(tmp_path / "bad"))


def npz_with_header(path: Path, header: bytes, compression: int) -> None:
    member = io.BytesIO()
    member.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\0" * 64)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x.npy", member.getvalue())
        archive.writestr("y.npy", member.getvalue())


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize(
    "shape", ["(1000000000000,)", "(-8,)", "(10**9,)", "(9,)", "(7,)", "'8'", "(2, -4)"]
)
def test_a_shape_that_the_bytes_do_not_fill_is_refused(
    tmp_path: Path, compression: int, shape: str
) -> None:
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    npz_with_header(tmp_path / "a.npz", header, compression)
    with pytest.raises(AdapterError, match="the npz file cannot be read"):
        open_npz(str(tmp_path / "a.npz"))


@settings(max_examples=150, deadline=None)
@given(edits=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_damaged_npz_is_refused_or_read_and_nothing_else(tmp_path_factory, edits) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.npz"
    np.savez_compressed(path, x=X, y=Y)
    content = bytearray(path.read_bytes())
    for position, value in edits:
        content[position % len(content)] = value
    path.write_bytes(content)
    try:
        data = open_npz(str(path))
    except AdapterError:
        return
    assert len(data) * 2 == len(data.inputs) + len(data.targets)
