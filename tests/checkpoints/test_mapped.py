from __future__ import annotations

import io

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from landscape_cli.checkpoints.damage import DamagedError
from landscape_cli.checkpoints.mapped import Storage, StoredTensor, Window, map_file


@given(
    data=st.binary(max_size=60)
    | st.lists(st.sampled_from([b"a", b"\n"]), max_size=40).map(b"".join),
    moves=st.lists(
        st.tuples(st.just("read"), st.integers(-1, 30))
        | st.tuples(st.just("readline"), st.none())
        | st.tuples(st.just("seek"), st.integers(0, 70)),
        max_size=12,
    ),
)
def test_a_window_reads_as_a_file_does(data, moves):
    window, file = Window(memoryview(data)), io.BytesIO(data)
    for name, argument in moves:
        arguments = () if argument is None else (argument,)
        assert getattr(window, name)(*arguments) == getattr(file, name)(*arguments)
        assert window.tell() == file.tell()


def test_long_lines_are_read_across_pieces():
    data = b"x" * 10_000 + b"\nrest"
    assert Window(memoryview(data)).readline() == b"x" * 10_000 + b"\n"


def test_a_line_without_end_is_damage():
    with pytest.raises(DamagedError, match="does not end"):
        Window(memoryview(bytes(2**25))).readline()


def test_a_seek_before_the_start_is_refused():
    with pytest.raises(ValueError, match="negative"):
        Window(memoryview(b"abc")).seek(-1)


def test_an_empty_file_is_damage(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(DamagedError, match="empty"):
        map_file(tmp_path / "empty")


def test_a_mapping_outlives_its_name(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abcd")
    data = map_file(path)
    path.unlink()
    assert bytes(data) == b"abcd"


dimensions = st.integers(0, 4)


@given(layout=st.lists(st.tuples(dimensions, dimensions), max_size=4), offset=st.integers(0, 20))
def test_a_view_is_what_as_strided_gives_or_reaches_beyond(layout, offset):
    region = memoryview(bytearray(torch.arange(12, dtype=torch.int64).numpy().tobytes()))
    storage = Storage(torch.int64, 12)
    storage.place(region)
    shape, stride = tuple(n for n, _ in layout), tuple(s for _, s in layout)
    stored = StoredTensor(storage, offset, shape, stride, torch.int64)
    indices = [offset]
    for size, step in layout:
        indices = [start + i * step for start in indices for i in range(size)]
    if any(index >= 12 for index in indices):
        with pytest.raises(DamagedError):
            stored.load()
    elif indices or offset <= 12:
        assert stored.load().reshape(-1).tolist() == indices
