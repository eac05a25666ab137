"""Runs that other programs laid out anew: read like ours, or refused, whatever is in them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import h5py
import numpy as np
import pytest
import test_store
import xarray
from test_store import ENGINES, assert_same, full_run, labels, mutate, run_of, small_run
from typer.testing import CliRunner

from landscape_cli import store
from landscape_cli.cli.app import app
from landscape_cli.errors import StoreError
from landscape_cli.runs import Run, Variable
from landscape_cli.store import conversion, foreign
from landscape_cli.store.hdf5 import ForeignLayoutError
from landscape_cli.store.reading import decode
from landscape_cli.store.sealing import seal
from landscape_cli.store.writing import encode

SECONDS = 30.0
"""That a hang may take: 6 of work, and starting a process on a machine that others use."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "again.h5"


def lay_out_anew(run: Run, path: Path, libver: object = "earliest", **storage: object) -> None:
    """Write a run as a user of h5py would: array by array, the scales attached again."""
    run = decode(encode(run))  # with a scale for every axis
    with h5py.File(path, "w", libver=libver) as file:
        file.attrs.update(run.attributes)
        scales = {name for name, v in run.variables.items() if v.dims == (name.split("/")[-1],)}
        for name, variable in run.variables.items():
            text = variable.values.dtype == object
            dtype = h5py.string_dtype() if text else variable.values.dtype
            options = {} if text or not variable.values.ndim else storage
            item = file.create_dataset(name, data=variable.values, dtype=dtype, **options)
            item.attrs["units"], item.attrs["long_name"] = variable.unit, variable.meaning
            if name in scales:
                item.make_scale(name)
        for name, variable in run.variables.items():
            for axis, dim in enumerate(variable.dims if name not in scales else ()):
                nearest = f"{name.rpartition('/')[0]}/{dim}"
                scale = nearest if nearest in scales else dim
                file[name].dims[axis].attach_scale(file[scale])


def written(tmp_path: Path) -> Run:
    """Return every variable of the format, as it comes back from a file of ours."""
    store.write(full_run(), tmp_path / "run.h5")
    return store.open_run(tmp_path / "run.h5")


# What other programs write is read


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tree_that_xarray_saved_again_is_the_same_run(
    tmp_path: Path, path: Path, engine: str
) -> None:
    run = written(tmp_path)
    with xarray.open_datatree(tmp_path / "run.h5", engine=engine) as tree:
        tree.load()
    tree.to_netcdf(path, engine=engine)
    found = store.open_run(path)
    assert_same(run, found)
    assert set(found.variables) == set(run.variables)
    assert found.attributes == run.attributes
    assert found.attributes["format_version"] == "1.0"
    assert found.source == str(path)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_opened_run_that_xarray_saves_is_the_same_run(
    tmp_path: Path, path: Path, engine: str
) -> None:
    run = written(tmp_path)
    run.to_xarray().to_netcdf(path, engine=engine)
    assert_same(run, store.open_run(path))


@pytest.mark.parametrize("engine", ENGINES)
def test_axes_without_labels_keep_their_names_and_get_no_variable_from_netcdf(
    tmp_path: Path, path: Path, engine: str
) -> None:
    store.write(small_run(), tmp_path / "run.h5")
    with xarray.open_dataset(tmp_path / "run.h5", engine=engine) as dataset:
        dataset.load().drop_vars("step").to_netcdf(path, engine=engine)
    found = store.open_run(path)
    assert found.variables["loss"].dims == ("checkpoint", "direction", "step")
    np.testing.assert_array_equal(found["loss"], small_run()["loss"])
    np.testing.assert_array_equal(found["step"], [0, 1])  # an index, as for any such axis


@pytest.mark.parametrize(
    "storage",
    [
        {},
        {"compression": "gzip", "compression_opts": 9, "shuffle": True},
        {"compression": "lzf", "fletcher32": True},
        {"chunks": True},
    ],
    ids=["plain", "gzip", "lzf", "chunks"],
)
@pytest.mark.parametrize("libver", ["earliest", "latest", ("v108", "v110")], ids=str)
def test_every_layout_of_h5py_is_the_same_run(
    tmp_path: Path, path: Path, libver: object, storage: dict
) -> None:
    run = written(tmp_path)
    lay_out_anew(run, path, libver, **storage)
    with pytest.raises(ForeignLayoutError):
        decode(path.read_bytes())
    assert_same(run, store.open_run(path))


@pytest.mark.skipif(shutil.which("h5repack") is None, reason="needs h5repack of hdf5-tools")
@pytest.mark.parametrize("options", [(), ("-f", "GZIP=5"), ("-L",)], ids=["plain", "gzip", "new"])
def test_a_run_that_h5repack_wrote_again_is_the_same_run(
    tmp_path: Path, path: Path, options: tuple
) -> None:
    run = written(tmp_path)
    subprocess.run(["h5repack", *options, tmp_path / "run.h5", path], timeout=60, check=True)
    assert_same(run, store.open_run(path))


def test_numbers_and_texts_of_other_kinds_are_read(path: Path) -> None:
    lay_out_anew(run_of(big=Variable(("big",), np.arange(3, dtype=">i4"))), path)
    with h5py.File(path, "r+") as file:
        file["fixed"] = np.array(["Ebene ü".encode(), b""], dtype="S20")
        file["half"] = np.array([0.5, np.nan], np.float16)
        file["flag"] = np.array([True, False])
        file["scalar"] = 3.5
        file.attrs["one"] = np.array([7])
        file.attrs["bytes"] = np.bytes_("später".encode())
        file.attrs["nothing"] = h5py.Empty("S1")
        file.attrs["many"] = np.arange(3)
    found = store.open_run(path)
    assert found["big"].tolist() == [0, 1, 2]
    assert found.labels("fixed") == ["Ebene ü", ""]
    assert found["half"].dtype == np.float32
    assert found["flag"].tolist() == [1, 0]
    assert float(found["scalar"]) == 3.5
    assert (found.attributes["one"], found.attributes["bytes"]) == (7, "später")
    assert found.attributes["nothing"] == ""
    assert "many" not in found.attributes


def test_commands_say_the_same_of_a_run_saved_again(tmp_path: Path, path: Path) -> None:
    run = written(tmp_path)
    run.to_xarray().to_netcdf(path, engine="h5netcdf")
    shown = [
        CliRunner().invoke(app, ["show", str(one), "--json"]) for one in (tmp_path / "run.h5", path)
    ]
    assert [result.exit_code for result in shown] == [0, 0]
    ours, theirs = (json.loads(result.stdout) for result in shown)
    assert ours.keys() > {"settings", "variables"}
    assert [summary.pop("path") for summary in (ours, theirs)] == [
        str(tmp_path / "run.h5"),
        str(path),
    ]
    assert theirs == ours


def test_neither_the_folder_nor_the_environment_decides_what_reads(path: Path, monkeypatch) -> None:
    lay_out_anew(small_run(), path)
    for name in ("numpy.py", "h5py.py", "json.py"):
        (path.parent / name).write_text("raise SystemExit('the wrong one')\n")
    (path.parent / "run.h5").write_text("the name that the library must not look for")
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("PYTHONPATH", str(path.parent))
    monkeypatch.setenv("PYTHONSTARTUP", str(path.parent / "json.py"))
    before = sorted(path.parent.iterdir())
    assert_same(small_run(), store.open_run(path))
    assert sorted(path.parent.iterdir()) == before


# What no run holds is refused here too


def write_foreign(path: Path, change: Callable[[h5py.File], None]) -> None:
    with h5py.File(path, "w", libver="earliest") as file:
        file.attrs["format"] = "landscape"
        file.attrs["format_version"] = "1.0"
        change(file)


def add_many_groups(file: h5py.File) -> None:
    """Two names for every group, on every level: more paths than anybody can walk."""
    group = file
    for level in range(40):
        below = group.create_group(f"a{level}")
        group[f"b{level}"] = below
        group = below


def add_huge(file: h5py.File) -> None:
    file.create_dataset("huge", shape=(2**40,), dtype="f8", chunks=(1024,))[:10] = 1


def add_never_written(file: h5py.File) -> None:
    file.create_dataset("fill", shape=(2**20,), dtype="f8")


def add_long_text(file: h5py.File) -> None:
    file.create_dataset("x", data=labels("x" * 60_000, *["a"] * 20_000))


def add_ragged(file: h5py.File) -> None:
    odd = file.create_dataset("odd", shape=(1,), dtype=h5py.vlen_dtype(np.float64))
    odd[0] = np.ones(3)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (test_store.add_external_link, "links to elsewhere"),
        (test_store.add_soft_link, "links to elsewhere"),
        (test_store.add_virtual, "takes data from other files"),
        (test_store.add_external_storage, "takes data from other files"),
        (test_store.add_references, "neither numbers nor text"),
        (test_store.add_compound, "neither numbers nor text"),
        (add_ragged, "neither numbers nor text"),
        (test_store.add_depth, "nested like no run's"),
        (test_store.add_cycle, "nested like no run's"),
        (add_many_groups, "nested like no run's"),
        (add_huge, "more data than it can hold"),
        (add_never_written, "never written"),
        (test_store.add_empty, "has no shape"),
        (test_store.add_nameless, "lost its scales"),
        (test_store.add_bytes, "damaged"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_no_run_holds_is_refused_in_any_layout(path: Path, change, what: str) -> None:
    write_foreign(path, change)
    with pytest.raises(StoreError, match=what) as caught:
        store.open_run(path)
    assert caught.value.seen.startswith(str(path))
    assert len(str(caught.value).splitlines()) == 3


def test_one_long_text_under_many_labels_is_refused_in_any_layout(path: Path) -> None:
    write_foreign(path, add_long_text)
    content = path.read_bytes()
    with h5py.File(path) as file:
        start = file["x"].id.get_offset()
    pointer = content[start : start + 16]
    path.write_bytes(content[:start] + pointer * 20_001 + content[start + 16 * 20_001 :])
    with pytest.raises(StoreError, match=r"more data than it can hold|damaged"):
        store.open_run(path)


def test_arrays_copied_one_by_one_lose_their_scales_and_the_error_says_so(
    tmp_path: Path, path: Path
) -> None:
    written(tmp_path)
    with h5py.File(tmp_path / "run.h5") as source, h5py.File(path, "w") as target:
        for name in source:
            source.copy(name, target)
        for name, value in source.attrs.items():
            target.attrs[name] = value
    with pytest.raises(StoreError, match="it has lost its scales") as caught:
        store.open_run(path)
    assert "copy the whole file" in caught.value.hint


def test_other_hdf5_and_newer_versions_are_told_from_damage(path: Path) -> None:
    for attributes, what, hint in (
        ({}, "not a run of landscape", "landscape probe"),
        ({"format": "landscape"}, "a format that this version cannot read", "probe again"),
        ({"format": "landscape", "format_version": "2.0"}, "cannot read", "pip install -U"),
    ):
        with h5py.File(path, "w") as file:
            file.attrs.update(attributes)
            file["x"] = np.zeros(3)
        with pytest.raises(StoreError, match=what) as caught:
            store.open_run(path)
        assert hint in caught.value.hint


# Files that the HDF5 library does not survive


def test_a_file_on_which_the_library_never_ends_is_refused(path: Path) -> None:
    """An object of no number and no length in a heap: HDF5 2.0 looks at it for ever."""
    lay_out_anew(small_run(), path)
    content = path.read_bytes()
    start = content.index(b"GCOL") + 16
    path.write_bytes(content[:start] + bytes(16) + content[start + 16 :])
    begun = time.monotonic()
    with pytest.raises(StoreError, match=r"comes to no end|damaged") as caught:
        store.open_run(path)
    assert time.monotonic() - begun < SECONDS
    assert caught.value.hint


def test_a_file_that_crashes_the_library_is_refused(path: Path) -> None:
    """A list of dimensions that is none: HDF5 2.0 frees what it never allocated."""
    write_foreign(path, test_store.add_wrong_list)
    with pytest.raises(StoreError, match=r"library crashed|damaged|lost its scales") as caught:
        store.open_run(path)
    assert caught.value.hint


def test_mutated_files_of_another_layout_are_read_or_refused(path: Path) -> None:
    lay_out_anew(small_run(), path, chunks=True, compression="gzip")
    image = path.read_bytes()
    outcomes = set()
    for seed in range(25):
        path.write_bytes(mutate(image, Random(seed)))
        begun = time.monotonic()
        try:
            outcomes.add(type(store.open_run(path)))
        except StoreError as error:
            outcomes.add(type(error))
            assert len(str(error).splitlines()) == 3
        assert time.monotonic() - begun < SECONDS
    assert outcomes >= {Run, StoreError}


def answering(monkeypatch, code: str) -> None:
    monkeypatch.setattr(conversion, "command", lambda: [sys.executable, "-I", "-c", code])


@pytest.mark.parametrize(
    ("code", "what", "seen"),
    [
        ("import os; os.kill(os.getpid(), 11)", "library crashed", "SIGSEGV"),
        ("import os; os.abort()", "library crashed", "SIGABRT"),
        ("raise SystemExit(3)", "cannot be read", "exit status 3"),
        ("import h5py_is_not_here", "cannot be read", "exit status 1"),
        ("import os; os.kill(os.getpid(), 24)", "comes to no end", "more than 1 s"),
        ("import time; time.sleep(600)", "comes to no end", "more than 3 s"),
        ("import os; os.close(1); import time; time.sleep(600)", "comes to no end", "3 s"),
        ("while True: print('x' * 65536)", "more data than it can hold", "bytes and more"),
        ("print('nonsense')", "library crashed", "nonsense"),
        ("print('E[[[[[')", "library crashed", "E"),
        ("print('E[1, 2]')", "library crashed", "E"),
        ("pass", "library crashed", "b''"),
        ("print('Rnonsense')", "not HDF5", "nonsense"),
        (r"""print('E["a\\nb", "c\\nd", ""]')""", "a b", "c d"),
    ],
)
def test_whatever_becomes_of_the_process_there_is_an_error(
    path: Path, monkeypatch, code: str, what: str, seen: str
) -> None:
    lay_out_anew(small_run(), path)
    answering(monkeypatch, code)
    monkeypatch.setattr(conversion, "_STARTUP_SECONDS", 1)
    monkeypatch.setattr(conversion, "seconds_for", lambda _: 1)
    monkeypatch.setattr(conversion, "memory_for", lambda _: 1 << 24)
    begun, others = time.monotonic(), children()
    with pytest.raises(StoreError, match=what) as caught:
        store.open_run(path)
    assert time.monotonic() - begun < SECONDS
    assert seen in caught.value.seen
    assert len(str(caught.value).splitlines()) == 3
    assert children() == others


def children() -> list[str]:
    """Return the processes of this one that are left, on Linux."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")
    return listed.read_text().split() if listed.exists() else []


def test_a_process_that_cannot_start_is_an_error(path: Path, monkeypatch) -> None:
    lay_out_anew(small_run(), path)
    monkeypatch.setattr(conversion, "command", lambda: ["/nowhere/python"])
    with pytest.raises(StoreError, match="cannot be read") as caught:
        store.open_run(path)
    assert "No such file" in caught.value.seen


def test_an_interrupt_ends_the_process_too(path: Path, monkeypatch) -> None:
    lay_out_anew(small_run(), path)
    answering(monkeypatch, "import time; time.sleep(600)")

    def interrupt(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(conversion, "_read_all", interrupt)
    others = children()
    with pytest.raises(KeyboardInterrupt):
        store.open_run(path)
    assert children() == others


def test_what_carries_our_seal_is_never_handed_to_the_library(path: Path, monkeypatch) -> None:
    lay_out_anew(small_run(), path)
    path.write_bytes(seal(path.read_bytes()))
    monkeypatch.setattr(conversion, "convert", lambda _: pytest.fail("it was"))
    with pytest.raises(StoreError, match="not as runs are written"):
        store.open_run(path)


# What the process may do


CONFINED = """
import os, sys
sys.path[:] = sys.argv[2:]
from landscape_cli.store.confinement import confine
confine(1000)
misdeeds = {
    "open": lambda: open("/etc/passwd"),
    "write": lambda: open("/tmp/written", "w"),
    "unlink": lambda: os.unlink(sys.argv[1]),
    "rename": lambda: os.rename(sys.argv[1], sys.argv[1] + "x"),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "fork": lambda: os.fork(),
    "kill": lambda: os.kill(os.getppid(), 0),
    "pipe": lambda: os.pipe(),
    "memory": lambda: bytearray(1 << 30),
}
done = []
for name, misdeed in misdeeds.items():
    try:
        misdeed()
    except (OSError, MemoryError):
        continue
    done.append(name)
assert len(bytearray(100 << 20)) == 100 << 20
print(*done)
sys.stdout.flush()
if sys.argv[1] == "work":
    while True:
        pass
"""


def confined(first: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-c", CONFINED, first, *conversion.command()[4:]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="filters calls on Linux only")
def test_a_confined_process_can_calculate_and_answer_and_nothing_else(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("here")
    finished = confined(str(victim))
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "\n", "")
    assert victim.read_text() == "here"


def test_a_confined_process_works_for_seconds_only() -> None:
    assert confined("work").returncode == -24


def test_the_process_reads_what_this_one_would(tmp_path: Path) -> None:
    """The same content through `foreign` here and through the whole way."""
    lay_out_anew(full_run(), tmp_path / "again.h5")
    content = (tmp_path / "again.h5").read_bytes()
    answer = foreign.answer(content)
    assert answer[:1] == b"R"
    assert_same(decode(answer[1:]), decode(conversion.convert(tmp_path / "again.h5")))
    assert foreign.answer(content[:3000])[:1] == b"E"
