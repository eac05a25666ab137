from __future__ import annotations

import errno
import json
import os
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from landscape_cli import disk
from landscape_cli.errors import StoreError
from landscape_cli.journal import Journal, read
from landscape_cli.journal.encoding import decode_unit, encode_unit
from landscape_cli.journal.headers import find_differences
from landscape_cli.journal.records import HEADER as HEADER_MARK
from landscape_cli.journal.records import MAGIC, UNIT, frame, parse
from landscape_cli.units import UnitKey, UnitResult

HEADER = {
    "settings": {"seed": 0, "batch_size": 128, "engine": "local", "workers": 1},
    "checkpoints": [{"label": "a", "sha256": "00"}, {"label": "b", "sha256": "11"}],
    "provenance": {"data_sha256": "ff"},
    "created": "2025-01-01",
    "command": "landscape probe",
}


def unit(index: int, **arrays: np.ndarray) -> UnitResult:
    key = UnitKey(0, "line", "gradient", index, index + 1)
    return UnitResult(key, arrays or {"columns": np.full((1, 5), float(index))})


def same(left: UnitResult, right: UnitResult) -> bool:
    assert (left.key, left.notices, left.error) == (right.key, right.notices, right.error)
    assert list(left.arrays) == list(right.arrays)
    for name, values in left.arrays.items():
        found = right.arrays[name]
        assert found.dtype == np.asarray(values).dtype
        np.testing.assert_array_equal(found, values)
    return True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Journal.path_of(tmp_path / "run.h5")


def filled(path: Path, count: int = 3) -> bytes:
    journal = Journal.create(path, HEADER)
    for index in range(count):
        journal.append(unit(index))
    journal.close()
    return path.read_bytes()


# Units come back as they were


def test_the_journal_lies_beside_the_output(tmp_path: Path) -> None:
    assert Journal.path_of(tmp_path / "run.h5") == tmp_path / "run.h5.journal"


@pytest.mark.parametrize(
    "values",
    [
        np.float64(2.5),
        np.array(np.nan),
        np.array([np.inf, -np.inf, -0.0]),
        np.arange(6, dtype=np.int64).reshape(2, 3).T,
        np.zeros((0, 4), np.float32),
        np.array([True, False]),
        np.array([1, 255], np.uint8),
        np.arange(3, dtype=">f8"),
        np.array(["features.0", "Ebene <b>ü</b>"], dtype=object),
        np.empty((0,), dtype=object),
    ],
    ids=lambda values: f"{values.dtype}{values.shape}",
)
def test_an_array_comes_back_as_it_was(path: Path, values: np.ndarray) -> None:
    with_values = unit(0, values=values)
    journal = Journal.create(path, HEADER)
    journal.append(with_values)
    journal.close()
    (found,) = read(path)[1]
    assert same(with_values, found)
    found.arrays["values"][...] = found.arrays["values"]  # what comes back can be written to


texts = st.text(st.characters(codec=None), max_size=20)
numbers = hnp.arrays(
    st.one_of(hnp.floating_dtypes(), hnp.integer_dtypes(), hnp.boolean_dtypes()),
    hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
)
keys = st.builds(
    UnitKey,
    st.integers(-1, 2**40),
    st.sampled_from(["base", "line", "measure", "plane", "choice", "failure"]),
    texts,
    st.integers(0, 2**40),
    st.integers(0, 2**40),
)
units = st.builds(
    UnitResult,
    keys,
    st.dictionaries(texts, numbers, max_size=3),
    st.lists(texts, max_size=2).map(tuple),
    texts,
)


@given(units)
@settings(deadline=None)
def test_any_unit_comes_back_as_it_was(one: UnitResult) -> None:
    assert same(one, decode_unit(encode_unit(one)))


def test_what_is_neither_numbers_nor_text_is_refused() -> None:
    with pytest.raises(TypeError, match="'bad' of a unit holds neither"):
        encode_unit(unit(0, bad=np.array([object()], dtype=object)))


def test_a_pickle_in_the_place_of_an_array_is_refused() -> None:
    head = {"key": [0, "base", "", 0, 0], "notices": [], "error": ""}
    head["arrays"] = {"x": {"dtype": "|O", "shape": [1]}}
    text = json.dumps(head).encode()
    with pytest.raises(ValueError, match="not as large as it says"):
        decode_unit(struct.pack("<I", len(text)) + text + bytes(8))


@pytest.mark.parametrize("shape", [[2**62], [-1], [2**40, 2**40], [3, -4]])
def test_a_declared_size_is_not_believed(shape: list[int]) -> None:
    head = {"key": [0, "base", "", 0, 0], "notices": [], "error": ""}
    head["arrays"] = {"x": {"dtype": "<f8", "shape": shape}}
    text = json.dumps(head).encode()
    with pytest.raises(ValueError, match="not as large as it says"):
        decode_unit(struct.pack("<I", len(text)) + text + bytes(64))


# Beginning and going on


def test_a_resumed_journal_returns_what_is_finished_and_goes_on(path: Path) -> None:
    filled(path, 2)
    journal, found = Journal.resume(path, {**HEADER, "created": "later", "command": "again"})
    assert [one.key.start for one in found] == [0, 1]
    assert journal.header == HEADER
    journal.append(unit(2))
    journal.close()
    header, found = read(path)
    assert header == HEADER
    assert [one.key.start for one in found] == [0, 1, 2]


def test_a_journal_can_be_read_while_it_is_written(path: Path) -> None:
    journal = Journal.create(path, HEADER)
    assert read(path) == (HEADER, [])
    journal.append(unit(0))
    assert len(read(path)[1]) == 1
    journal.close()


def test_a_journal_is_never_begun_over_another(path: Path) -> None:
    content = filled(path)
    with pytest.raises(StoreError, match="has a journal already") as caught:
        Journal.create(path, HEADER)
    assert "--resume" in caught.value.hint
    assert path.read_bytes() == content


def test_a_journal_is_replaced_only_where_nobody_writes_it(path: Path) -> None:
    filled(path)
    writer, _ = Journal.resume(path, HEADER)
    with pytest.raises(StoreError, match="another process"):
        Journal.replace(path, {"settings": {}})
    writer.close()
    assert len(read(path)[1]) == 3
    journal = Journal.replace(path, {"settings": {}})
    journal.append(unit(7))
    journal.close()
    header, units = read(path)
    assert header == {"settings": {}}
    assert [one.key.start for one in units] == [7]


def test_where_a_run_is_measured_may_change() -> None:
    elsewhere = {**HEADER, "settings": {**HEADER["settings"], "engine": "ray", "workers": 8}}
    assert list(find_differences(HEADER, elsewhere)) == []


@pytest.mark.parametrize(
    ("recorded", "present", "goes_on"),
    [
        ("cpu x86_64", "cpu x86_64", True),
        ("cpu x86_64", "cpu aarch64", False),
        ("cpu x86_64", "cuda:0 NVIDIA A", False),
        ("cuda:0 NVIDIA A", "cuda:1 NVIDIA A", True),
        ("cuda:0 NVIDIA A", "cuda:0 NVIDIA A, cuda:1 NVIDIA A", True),
        ("cuda:0 NVIDIA A, cuda:1 NVIDIA A", "cuda:3 NVIDIA A", True),
        ("cuda:0 NVIDIA A", "cuda:0 NVIDIA A, cuda:1 NVIDIA B", False),
        ("cuda:0 NVIDIA A, cuda:1 NVIDIA B", "cuda:0 NVIDIA B", True),
    ],
)
def test_a_run_goes_on_with_devices_of_the_kinds_it_was_begun_on(
    recorded: str, present: str, goes_on: bool
) -> None:
    before = {"settings": {"device": "auto"}, "provenance": {"device": recorded}}
    now = {"settings": {"device": "cpu,cpu"}, "provenance": {"device": present}}
    seen = [f'provenance.device was "{recorded}", is "{present}"']
    differences = list(find_differences(before, now))
    assert (differences == []) == goes_on
    assert goes_on or differences == seen


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({"settings": {**HEADER["settings"], "seed": 1}}, "settings.seed was 0, is 1"),
        ({"settings": {"seed": 0}}, "settings.batch_size was 128, is absent"),
        (
            {"checkpoints": [HEADER["checkpoints"][0], {"label": "b", "sha256": "22"}]},
            'checkpoints[1].sha256 was "11", is "22"',
        ),
        ({"provenance": {"data_sha256": "00"}}, 'provenance.data_sha256 was "ff", is "00"'),
        ({"checkpoints": [HEADER["checkpoints"][0]]}, "checkpoints had 2 entries, has 1"),
    ],
)
def test_a_run_that_was_planned_differently_does_not_go_on(
    path: Path, changes: dict, seen: str
) -> None:
    content = filled(path)
    with pytest.raises(StoreError, match="other settings, checkpoints or data") as caught:
        Journal.resume(path, {**HEADER, **changes})
    assert seen in caught.value.seen
    assert "--overwrite" in caught.value.hint
    assert path.read_bytes() == content
    Journal.resume(path, HEADER)[0].close()  # the lock was given up


def test_many_differences_are_counted_rather_than_listed(path: Path) -> None:
    Journal.create(path, {"settings": {str(index): 0 for index in range(9)}}).close()
    with pytest.raises(StoreError) as caught:
        Journal.resume(path, {"settings": {str(index): 1 for index in range(9)}})
    assert caught.value.seen.endswith("; and 6 more")


def test_a_header_with_a_nan_is_the_same_as_itself(path: Path) -> None:
    header = {"settings": {"lr": float("nan")}}
    Journal.create(path, header).close()
    Journal.resume(path, header)[0].close()


def test_the_end_of_a_run_takes_the_journal_with_it(path: Path) -> None:
    journal = Journal.create(path, HEADER)
    journal.close(remove=True)
    journal.close()
    assert not path.exists()


# Two writers


def test_a_second_writer_is_told_who_the_first_is(path: Path) -> None:
    journal = Journal.create(path, HEADER)
    for attempt in (Journal.create, Journal.resume):
        with pytest.raises(StoreError, match="another process is writing this output") as caught:
            attempt(path, HEADER)
        assert f"process {os.getpid()} on {os.uname().nodename}" in caught.value.seen
        assert "another -o" in caught.value.hint
    journal.append(unit(0))
    journal.close()
    assert len(read(path)[1]) == 1


def test_the_second_writer_is_named_after_a_resume(path: Path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        filled(path)
    journal, _ = Journal.resume(path, HEADER)
    with pytest.raises(StoreError) as caught:
        Journal.resume(path, HEADER)
    assert f"process {os.getpid()} on" in caught.value.seen
    journal.close()


def test_a_journal_that_its_writer_removed_meanwhile_is_not_written_to(
    path: Path, monkeypatch
) -> None:
    filled(path)

    def lock_late(descriptor: int) -> bool:
        path.unlink()
        return True

    monkeypatch.setattr("landscape_cli.journal.writing.try_lock", lock_late)
    with pytest.raises(StoreError, match="another process"):
        Journal.resume(path, HEADER)


def test_a_file_system_without_locks_does_not_stop_a_run(path: Path, monkeypatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, "no locks here")

    monkeypatch.setattr(disk.fcntl, "flock", refuse)
    filled(path)
    assert len(read(path)[1]) == 3


def test_a_forked_child_does_not_keep_the_lock(path: Path) -> None:
    journal = Journal.create(path, HEADER)
    ready, said_ready = os.pipe()
    until_done, done = os.pipe()
    with warnings.catch_warnings():  # Python 3.12 warns of forks wherever there are threads
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(done)
        os.write(said_ready, b".")
        os.read(until_done, 1)
        os._exit(0)
    os.read(ready, 1)
    journal.close()
    Journal.resume(path, HEADER)[0].close()
    os.close(done)
    assert os.waitpid(child, 0)[1] == 0
    for descriptor in (ready, said_ready, until_done):
        os.close(descriptor)


# Damage


def record_starts(content: bytes) -> list[int]:
    starts, offset = [], content.find(UNIT)
    while offset >= 0:
        starts.append(offset)
        offset = content.find(UNIT, offset + 1)
    return starts


def test_a_torn_tail_is_cut_off_wherever_it_is_torn(path: Path) -> None:
    content = filled(path, 3)
    last = record_starts(content)[-1]
    for length in {*range(last, len(content), 7), len(content) - 1}:
        path.write_bytes(content[:length])
        journal, found = Journal.resume(path, HEADER)
        assert len(found) == 2
        assert journal.notices == []
        journal.append(unit(2))
        journal.close()
        assert len(read(path)[1]) == 3


def test_a_kill_while_the_header_is_written_loses_nothing(path: Path) -> None:
    content = filled(path, 0)
    header_end = content.find(b"\x89LSwriter")
    for length in {*range(0, header_end, 13), len(MAGIC), header_end - 1}:
        path.write_bytes(content[:length])
        with pytest.raises(StoreError, match="holds nothing yet"):
            read(path)
        journal, found = Journal.resume(path, HEADER)
        journal.close()
        assert found == []
        assert read(path) == (HEADER, [])


def test_units_without_their_header_are_neither_used_nor_destroyed(path: Path) -> None:
    content = bytearray(filled(path, 3))
    content[len(MAGIC) + 40] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="beginning of the journal is damaged") as caught:
        Journal.resume(path, HEADER)
    assert "3 whole units" in caught.value.seen
    assert path.read_bytes() == content


def test_damage_in_the_middle_keeps_what_is_before_and_counts_what_is_after(path: Path) -> None:
    content = bytearray(filled(path, 5))
    content[record_starts(content)[1] + 60] ^= 1
    path.write_bytes(content)
    assert [one.key.start for one in read(path)[1]] == [0]
    journal, found = Journal.resume(path, HEADER)
    assert [one.key.start for one in found] == [0]
    (notice,) = journal.notices
    assert "at least 4 units are lost and will be measured again" in notice
    journal.append(unit(1))
    journal.close()
    assert [one.key.start for one in read(path)[1]] == [0, 1]


def test_a_length_beyond_the_file_is_not_believed(path: Path) -> None:
    content = bytearray(filled(path, 3))
    struct.pack_into("<Q", content, record_starts(content)[1] + len(UNIT), 2**63)
    path.write_bytes(content)
    assert len(read(path)[1]) == 1


def test_a_whole_record_that_is_no_unit_ends_the_journal(path: Path) -> None:
    content = filled(path, 1)
    for payload in (b"", b"\xff" * 40, struct.pack("<I", 2) + b"[]", b"\x02\0\0\0{}"):
        path.write_bytes(content + frame(UNIT, payload) + content[record_starts(content)[0] :])
        assert len(read(path)[1]) == 1


def test_deeply_nested_json_is_no_header(path: Path) -> None:
    path.write_bytes(MAGIC + frame(HEADER_MARK, b"[" * 100_000))
    with pytest.raises(StoreError, match="holds nothing yet"):
        read(path)


def test_a_file_of_false_marks_is_read_in_no_time(path: Path) -> None:
    false = struct.pack("<9sQ16s", UNIT, 2**20, b"")
    contents = parse(MAGIC + false * 100_000, path)
    assert contents.units == []
    assert contents.lost == 0


@pytest.mark.parametrize("content", [b"PK\x03\x04", b"landscape journal 2\n", b"\x89HDF\r\n\x1a\n"])
def test_a_file_that_is_no_journal_is_refused_and_kept(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for attempt in (read, lambda path: Journal.resume(path, HEADER)):
        with pytest.raises(StoreError, match="not a journal of landscape"):
            attempt(path)
    assert path.read_bytes() == content


def test_a_missing_journal_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        read(tmp_path / "missing")
    with pytest.raises(StoreError, match="not a file"):
        read(tmp_path)
    with pytest.raises(StoreError, match="could not be opened"):
        Journal.resume(tmp_path / "missing", HEADER)
    with pytest.raises(StoreError, match="could not be opened") as caught:
        Journal.create(tmp_path / "no" / "folder", HEADER)
    assert "mkdir -p" in caught.value.hint


mutations = st.lists(
    st.tuples(st.integers(0, 2**20), st.binary(max_size=12), st.integers(0, 12)),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    return filled(tmp_path_factory.mktemp("whole") / "run.h5.journal", 4)


@given(mutations)
@settings(max_examples=300, deadline=None)
def test_mutated_bytes_give_an_error_or_whole_units_only(whole: bytes, changes) -> None:
    content = whole
    for place, inserted, removed in changes:
        position = place % (len(content) + 1)
        content = content[:position] + inserted + content[position + removed :]
    try:
        contents = parse(content, Path("run.h5.journal"))
    except StoreError:
        return
    originals = {unit(index).key: unit(index) for index in range(4)}
    assert all(same(originals[one.key], one) for one in contents.units)


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_any_bytes_in_a_whole_record_are_read_without_an_exception(payload: bytes) -> None:
    head = frame(HEADER_MARK, b"{}")
    contents = parse(MAGIC + head + frame(UNIT, payload), Path("run.h5.journal"))
    assert contents.header == {}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.sampled_from(["x", "dtype", "shape", "labels"]), children, max_size=4)
    ),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {"key": json_values, "arrays": json_values, "notices": json_values, "error": json_values}
    )
)
@settings(max_examples=200, deadline=None)
def test_any_head_in_a_whole_record_is_read_without_an_exception(head: dict) -> None:
    text = json.dumps(head).encode()
    payload = struct.pack("<I", len(text)) + text + bytes(16)
    parse(MAGIC + frame(HEADER_MARK, b"{}") + frame(UNIT, payload), Path("run.h5.journal"))


# The disk


def test_a_unit_is_synchronised_before_append_returns(path: Path, monkeypatch) -> None:
    journal = Journal.create(path, HEADER)
    calls: list[str] = []
    write, sync = os.pwrite, os.fsync
    monkeypatch.setattr(os, "pwrite", lambda *args: calls.append("write") or write(*args))
    monkeypatch.setattr(os, "fsync", lambda *args: calls.append("sync") or sync(*args))
    journal.append(unit(0))
    assert calls == ["write", "sync"]
    journal.close()


@pytest.mark.parametrize("failing", ["pwrite", "fsync"])
def test_a_unit_that_the_disk_does_not_take_leaves_no_trace(
    path: Path, monkeypatch, failing: str
) -> None:
    content = filled(path, 1)
    journal, _ = Journal.resume(path, HEADER)
    before = path.read_bytes()
    write = os.pwrite

    def half(descriptor: int, data: memoryview, offset: int) -> int:
        if len(data) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[: len(data) // 2], offset)

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, half if failing == "pwrite" else fail)
        with pytest.raises(StoreError, match="could not be written"):
            journal.append(unit(1))
        assert path.read_bytes() == before
    journal.append(unit(1))
    journal.close()
    assert before.startswith(content)
    assert [one.key.start for one in read(path)[1]] == [0, 1]


def test_a_tail_that_could_not_be_cut_off_is_written_over(path: Path, monkeypatch) -> None:
    journal = Journal.create(path, HEADER)
    write = os.pwrite

    def torn(descriptor: int, data: memoryview, offset: int) -> int:
        write(descriptor, data[:-1], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    def fail(*args: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", torn)
        patch.setattr(os, "ftruncate", fail)
        with pytest.raises(StoreError):
            journal.append(unit(0, columns=np.zeros(1000)))
    journal.append(unit(1))
    journal.append(unit(2))
    journal.close()
    assert [one.key.start for one in read(path)[1]] == [1, 2]
    journal, found = Journal.resume(path, HEADER)
    journal.close()
    assert len(found) == 2
