from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from random import Random

import h5py
import numpy as np
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from synthetic import synthetic_run, with_measures

from landscape_cli import store
from landscape_cli.errors import StoreError
from landscape_cli.journal import Journal
from landscape_cli.runs import Run, Variable
from landscape_cli.store.hdf5 import ForeignLayoutError
from landscape_cli.store.reading import decode
from landscape_cli.store.sealing import seal
from landscape_cli.store.writing import encode

ENGINES = ("h5netcdf", "netcdf4")


def labels(*texts: str) -> np.ndarray:
    return np.array(texts, dtype=object)


def run_of(**variables: Variable) -> Run:
    return Run({path.replace("__", "/"): v for path, v in variables.items()}, {"status": "partial"})


def small_run() -> Run:
    """A run with axes in the root and in groups, one of them without labels of its own."""
    loss = np.arange(12, dtype=float).reshape(2, 3, 2)
    return run_of(
        checkpoint=Variable(("checkpoint",), labels("a", "b")),
        direction=Variable(("direction",), labels("gradient", "random:0", "random:1")),
        step=Variable(("step",), np.arange(2)),
        loss=Variable(("checkpoint", "direction", "step"), loss, "loss", "L(θ(a))"),
        shift__layer=Variable(("layer",), labels("features.0", "features.1")),
        shift__l2=Variable(("checkpoint", "layer"), np.ones((2, 2))),
        stats__layer=Variable(("layer",), labels("x", "y", "z")),
        stats__mean=Variable(("checkpoint", "layer"), np.ones((2, 3))),
        stats__histogram=Variable(("checkpoint", "layer", "bin"), np.ones((2, 3, 5), np.float32)),
    )


def full_run() -> Run:
    """Every variable of the file format."""
    return with_measures(synthetic_run())


def round_trip(run: Run, path: Path) -> Run:
    store.write(run, path)
    return store.open_run(path)


def assert_same(left: Run, right: Run) -> None:
    for path, variable in left.variables.items():
        found = right.variables[path]
        assert found.dims == variable.dims, path
        assert found.values.dtype == variable.values.dtype, path
        np.testing.assert_array_equal(found.values, variable.values, err_msg=path)
        assert (found.unit, found.meaning) == (variable.unit, variable.meaning)
    for name, value in left.attributes.items():
        assert right.attributes[name] == value
        assert type(right.attributes[name]) is type(value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.h5"


# A run comes back as it was


@pytest.mark.parametrize("run", [small_run(), full_run(), synthetic_run(checkpoints=1, steps=1)])
def test_a_run_comes_back_as_it_was(run: Run, path: Path) -> None:
    found = round_trip(run, path)
    assert_same(run, found)
    made_up = set(found.variables) - set(run.variables)
    axes = {dim for variable in run.variables.values() for dim in variable.dims}
    assert all(name.rpartition("/")[2] in axes for name in made_up)
    assert found.source == str(path)
    assert found.attributes["format"] == "landscape"
    assert found.attributes["format_version"] == "1.0"
    assert_same(found, round_trip(found, path))
    assert found.groups() == run.groups()


@pytest.mark.parametrize(
    "dtype",
    ["f4", "f8", ">f8", "i1", "i2", "i4", "i8", ">i4", "u1", "u2", "u4", "u8"],
)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3,), (2, 0, 3), (2, 3, 4)])
def test_numbers_of_every_type_and_shape_come_back(path: Path, dtype: str, shape: tuple) -> None:
    generator = np.random.default_rng(0)
    values = generator.integers(0, 100, shape).astype(dtype)
    dims = tuple("abc"[: len(shape)])
    (found,) = (round_trip(run_of(x=Variable(dims, values)), path).variables[name] for name in "x")
    assert found.dims == dims
    assert found.values.dtype == values.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found.values, values)


@given(
    hnp.arrays(
        st.one_of(
            hnp.floating_dtypes(sizes=(32, 64)), hnp.integer_dtypes(), hnp.unsigned_integer_dtypes()
        ),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    )
)
@settings(max_examples=60, deadline=None)
def test_any_numbers_come_back_bit_for_bit(tmp_path_factory, values: np.ndarray) -> None:
    path = tmp_path_factory.getbasetemp() / "any.h5"
    dims = tuple("abcd"[: values.ndim])
    found = round_trip(run_of(x=Variable(dims, values)), path)["x"]
    native = values.astype(values.dtype.newbyteorder("="))
    assert found.dtype == native.dtype
    assert found.tobytes() == native.tobytes()


def test_booleans_become_uint8_and_half_precision_becomes_single(path: Path) -> None:
    run = run_of(
        flag=Variable(("x",), np.array([True, False])),
        half=Variable(("x",), np.array([0.5, np.nan], np.float16)),
    )
    found = round_trip(run, path)
    assert found["flag"].dtype == np.uint8
    assert found["half"].dtype == np.float32
    np.testing.assert_array_equal(found["half"], [0.5, np.nan])


@pytest.mark.parametrize(
    "text",
    ["", "Ebene ü", "<script>alert('&')</script>", "層/🙂", "a\nb\tc", " ", "x" * 100_000],
)
def test_labels_come_back_whatever_they_hold(path: Path, text: str) -> None:
    found = round_trip(run_of(layer=Variable(("layer",), labels(text, "b"))), path)
    assert found.labels("layer") == [text, "b"]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_labels_come_back(tmp_path_factory, texts: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "labels.h5"
    found = round_trip(run_of(layer=Variable(("layer",), labels(*texts))), path)
    assert found.labels("layer") == texts


def test_what_utf8_text_cannot_hold_is_spelled_out(path: Path) -> None:
    name = os.fsdecode(b"step-\xff") + "\0"
    run = run_of(checkpoint=Variable(("checkpoint",), labels(name)))
    run.attributes["command"] = f"landscape probe {name}"
    found = round_trip(run, path)
    assert found.labels("checkpoint") == ["step-\\udcff\\x00"]
    assert found.attributes["command"] == "landscape probe step-\\udcff\\x00"


def test_labels_that_are_not_text_are_refused(path: Path) -> None:
    with pytest.raises(StoreError, match="a label of 'layer' is not text"):
        store.write(run_of(layer=Variable(("layer",), np.array(["a", 1], dtype=object))), path)
    with pytest.raises(StoreError, match="type that the file cannot hold"):
        store.write(run_of(x=Variable((), np.array(1j))), path)
    assert not path.exists()


def test_attributes_come_back_and_structures_become_json(path: Path) -> None:
    run = small_run()
    run.attributes.update(
        settings=json.dumps({"model": "m" * 200_000}),
        seed=2**63 - 1,
        parameters=np.int64(7),
        ratio=0.1,
        unknown=None,
        versions={"torch": "2.13"},
        exact=True,
        huge=2**70,
        empty="",
    )
    found = round_trip(run, path).attributes
    assert found["settings"] == run.attributes["settings"]
    assert (found["seed"], found["parameters"], found["ratio"]) == (2**63 - 1, 7, 0.1)
    assert "unknown" not in found
    assert json.loads(found["versions"]) == {"torch": "2.13"}
    assert (found["exact"], found["huge"], found["empty"]) == (1, str(2**70), "")


def test_large_arrays_are_compressed_and_small_ones_are_not(path: Path) -> None:
    run = run_of(
        large=Variable(("x", "y"), np.zeros((1000, 1000))), small=Variable(("z",), np.zeros(10))
    )
    assert_same(run, round_trip(run, path))
    with h5py.File(path) as file:
        assert file["large"].compression == "gzip"
        assert file["small"].compression is None
    assert path.stat().st_size < 200_000


# Other programs read it


def test_every_axis_has_a_scale_of_its_own_name(path: Path) -> None:
    store.write(full_run(), path)
    with h5py.File(path) as file:
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if "dims" in dir(item) else None)
        checked = 0
        for name in names:
            dataset = file[name]
            assert dataset.dtype != np.float16
            assert dataset.dtype.kind != "b"
            if dataset.is_scale:
                assert dataset.ndim == 1
                continue
            for axis, dim in enumerate(dataset.dims):
                assert len(dim) == 1, name
                assert dim.label == ""
                assert dim[0].shape == (dataset.shape[axis],)
                checked += 1
        assert checked > 80
        assert file["step"].dtype == np.int64
        assert h5py.check_string_dtype(file["checkpoint"].dtype) == h5py.h5t.string_info(
            "utf-8", None
        )
        for item in (file, *(file[name] for name in names)):
            for name in item.attrs:
                assert item.attrs.get_id(name).dtype.kind != "b"


def test_a_scale_lies_in_the_root_or_in_the_only_group_that_has_it(path: Path) -> None:
    store.write(small_run(), path)
    with h5py.File(path) as file:
        assert file["shift/l2"].dims[0][0].name == "/checkpoint"
        assert file["shift/l2"].dims[1][0].name == "/shift/layer"
        assert file["stats/mean"].dims[1][0].name == "/stats/layer"
        assert file["stats/histogram"].dims[2][0].name == "/stats/bin"
        np.testing.assert_array_equal(file["stats/bin"], np.arange(5))


def assert_holds(dataset: xarray.Dataset, group: str, run: Run) -> int:
    count = 0
    for name, array in dataset.variables.items():
        variable = run.variables.get(f"{group}/{name}".strip("/"))
        if variable is not None:
            assert array.dims == variable.dims
            np.testing.assert_array_equal(array.values, variable.values)
            assert array.attrs.get("long_name", "") == variable.meaning
            count += 1
    return count


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("run", [small_run(), full_run()], ids=["small", "full"])
def test_xarray_opens_every_group_and_the_tree(path: Path, engine: str, run: Run) -> None:
    store.write(run, path)
    for group in ("", *run.groups()):
        with xarray.open_dataset(path, engine=engine, group=group or None) as dataset:
            dataset.load()
            assert dataset.sizes
            assert not any(str(dim).startswith("phony") for dim in dataset.dims)
            expected = [name for name in run.variables if name.rpartition("/")[0] == group]
            assert assert_holds(dataset, group, run) == len(expected)
    with xarray.open_datatree(path, engine=engine) as tree:
        tree.load()
        assert tree.attrs["format"] == "landscape"
        assert tree.attrs["status"] == run.attributes["status"]
        count = sum(assert_holds(node.to_dataset(), node.path, run) for node in tree.subtree)
        assert count >= len(run.variables)
        first = tree["loss"].sel(checkpoint=run.labels("checkpoint")[0], direction="gradient")
        np.testing.assert_array_equal(first, run["loss"][0, 0])


@pytest.mark.parametrize("engine", ENGINES)
def test_xarray_opens_empty_axes_scalars_odd_sizes_and_strange_labels(
    path: Path, engine: str
) -> None:
    run = run_of(
        empty=Variable(("none",), np.zeros(0)),
        scalar=Variable((), np.float64(3)),
        odd=Variable(("three",), np.array([1, 2, 255], np.uint8)),
        layer=Variable(("layer",), labels("", "<b>&ü</b>")),
        wall_time=Variable(("layer",), np.ones(2), "seconds", "time taken"),
    )
    store.write(run, path)
    with xarray.open_dataset(path, engine=engine) as dataset:
        dataset.load()
        assert dataset["empty"].shape == (0,)
        assert float(dataset["scalar"]) == 3
        assert dataset["odd"].values.tolist() == [1, 2, 255]
        assert dataset["layer"].values.tolist() == ["", "<b>&ü</b>"]
        assert dataset["wall_time"].dtype == np.float64
        assert dataset["wall_time"].attrs == {"units": "s", "long_name": "time taken"}


def test_a_variable_named_as_an_axis_that_it_does_not_label_is_refused(path: Path) -> None:
    edges = Variable(("layer", "edge"), np.zeros((2, 3)))
    with pytest.raises(StoreError, match="'stats/edge' has the name of an axis"):
        store.write(run_of(stats__edge=edges), path)


def test_axes_that_do_not_fit_their_labels_are_refused(path: Path) -> None:
    run = small_run()
    run.variables["loss"] = Variable(("checkpoint",), np.zeros(3))
    with pytest.raises(StoreError, match="axis 'checkpoint' of 'loss' does not fit") as caught:
        store.write(run, path)
    assert caught.value.seen == "3 values, 2 labels in 'checkpoint'"


# Writing is all or nothing


def test_the_file_reaches_the_disk_before_it_gets_its_name(path: Path, monkeypatch) -> None:
    calls: list[str] = []
    sync, replace = os.fsync, Path.replace

    def note_sync(descriptor: int) -> None:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        calls.append("folder" if folder else "file")
        sync(descriptor)

    def note_replace(self: Path, target: Path) -> Path:
        calls.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_replace)
    store.write(small_run(), path)
    assert calls == ["file", "rename", "folder"]


@pytest.mark.parametrize("failing", ["pwrite", "fsync"])
def test_a_disk_that_fails_leaves_the_old_file_and_no_other(
    path: Path, monkeypatch, failing: str
) -> None:
    store.write(small_run(), path)
    before = path.read_bytes()

    def fail(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(StoreError, match="the run could not be written") as caught:
        store.write(full_run(), path)
    assert caught.value.seen == f"{path}: No space left on device"
    assert "free some space" in caught.value.hint
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_missing_folder_a_file_as_folder_and_a_folder_as_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for target, reason, hint in (
        (tmp_path / "no" / "run.h5", "No such file or directory", "mkdir -p"),
        (tmp_path / "file" / "run.h5", "Not a directory", "a part of the path is a file"),
        (tmp_path, "Is a directory", "the path is a folder"),
        (tmp_path / ("x" * 300), "File name too long", "shorter name"),
    ):
        with pytest.raises(StoreError) as caught:
            store.write(small_run(), target)
        assert reason in caught.value.seen
        assert hint in caught.value.hint
        assert len(str(caught.value).splitlines()) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


READ_ONLY = """
import os, sys
sys.path.insert(0, sys.argv[1])
import test_store
from landscape_cli import store
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
try:
    store.write(test_store.small_run(), sys.argv[2])
except test_store.StoreError as error:
    print(error)
"""


def test_a_read_only_folder_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(Path(__file__).parent), str(folder / "run.h5")],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert list(folder.iterdir()) == []
    first, second, third = done.stdout.splitlines()
    assert first == "the run could not be written"
    assert second.endswith("Permission denied")
    assert "a folder that you may write" in third


def test_a_symbolic_link_is_followed_and_the_mode_is_kept(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    target = tmp_path / "scratch" / "run.h5"
    link = tmp_path / "run.h5"
    link.symlink_to(target)
    store.write(small_run(), link)
    assert link.is_symlink()
    target.chmod(0o640)
    store.write(small_run(), link)
    assert link.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert_same(small_run(), store.open_run(link))


def test_an_interrupt_leaves_no_temporary_file(path: Path, monkeypatch) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.write(small_run(), path)
    assert list(path.parent.iterdir()) == []


def test_a_run_opens_while_another_program_has_it_open(path: Path) -> None:
    store.write(small_run(), path)
    with h5py.File(path), xarray.open_dataset(path, engine="netcdf4"):
        assert_same(small_run(), store.open_run(path))


# Versions and foreign files


def rewrite(path: Path, change) -> None:
    """Change a file with h5py, as another program would."""
    with h5py.File(path, "r+") as file:
        change(file)


def test_a_newer_minor_version_is_read(path: Path) -> None:
    store.write(small_run(), path)
    rewrite(path, lambda file: file.attrs.__setitem__("format_version", "1.7"))
    assert store.open_run(path).attributes["format_version"] == "1.7"


@pytest.mark.parametrize(
    ("version", "hint"),
    [("2.0", "pip install -U"), ("10.3", "pip install -U"), ("0.9", "probe again"), ("x", "probe")],
)
def test_another_major_version_is_refused(path: Path, version: str, hint: str) -> None:
    store.write(small_run(), path)
    rewrite(path, lambda file: file.attrs.__setitem__("format_version", version))
    with pytest.raises(StoreError, match="a format that this version cannot read") as caught:
        store.open_run(path)
    assert version in caught.value.seen
    assert hint in caught.value.hint


def write_with_h5py(path: Path, change, **options: object) -> None:
    with h5py.File(path, "w", libver=("v110", "v110"), **options) as file:
        file.attrs["format"] = "landscape"
        file.attrs["format_version"] = "1.0"
        change(file)


def add_external_link(file) -> None:
    file["stolen"] = h5py.ExternalLink("/etc/passwd", "/")


def add_soft_link(file) -> None:
    file["stolen"] = h5py.SoftLink("/elsewhere")


def add_virtual(file) -> None:
    layout = h5py.VirtualLayout(shape=(4,), dtype="f8")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", shape=(4,))
    file.create_virtual_dataset("stolen", layout)


def add_external_storage(file) -> None:
    file.create_dataset("stolen", shape=(16,), dtype="u1", external=[("/etc/passwd", 0, 16)])


def add_references(file) -> None:
    file.create_dataset("odd", data=np.array([file.ref], dtype=h5py.ref_dtype))


def add_compound(file) -> None:
    file.create_dataset("odd", data=np.zeros(2, dtype=[("a", "f8"), ("b", "i4")]))


def add_ragged(file) -> None:
    file.create_dataset("odd", shape=(2,), dtype=h5py.vlen_dtype(np.float64))


def add_huge(file) -> None:
    file.create_dataset("huge", shape=(2**40,), dtype="f8", chunks=(1024,))


def add_huge_chunk(file) -> None:
    file.create_dataset("huge", shape=(1,), maxshape=(None,), dtype="f8", chunks=(2**28,))


def add_many_fills(file) -> None:
    for index in range(100):
        file.create_dataset(f"fill{index}", shape=(2**20,), dtype="f8")


def add_foreign_filter(file) -> None:
    file.create_dataset("odd", data=np.zeros(100), chunks=(100,), compression="lzf")


def add_index(file) -> None:
    file.create_dataset("odd", data=np.zeros(100), chunks=(10,))


def add_many_attributes(file) -> None:
    for index in range(20):
        file.attrs[f"note{index}"] = index


def add_cycle(file) -> None:
    file["self"] = file["/"]


def add_depth(file) -> None:
    file.create_group("a/b/c/d/e/f")


def add_nameless(file) -> None:
    file.create_dataset("odd", data=np.zeros((2, 2)))


def add_empty(file) -> None:
    file.create_dataset("odd", data=h5py.Empty("f8"))


def add_wrong_scale(file) -> None:
    file.create_dataset("x", data=np.zeros(3)).make_scale("x")
    file.create_dataset("loss", data=np.zeros(2)).dims[0].attach_scale(file["x"])


def add_wrong_list(file) -> None:
    file.create_dataset("loss", data=np.zeros(2)).attrs["DIMENSION_LIST"] = np.arange(5)


def add_bytes(file) -> None:
    file.create_dataset("x", data=np.array([b"\xff\xfe"], dtype=h5py.string_dtype()))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (add_external_link, "links to elsewhere"),
        (add_soft_link, "links to elsewhere"),
        (add_virtual, "takes data from other files"),
        (add_external_storage, "takes data from other files"),
        (add_references, "neither numbers nor text"),
        (add_compound, "neither numbers nor text"),
        (add_ragged, "neither numbers nor text"),
        (add_huge, "declares more data than this machine can hold"),
        (add_huge_chunk, "declares data that was never written"),
        (add_many_fills, "declares data that was never written"),
        (add_cycle, "nested like no run's"),
        (add_depth, "nested like no run's"),
        (add_nameless, "does not name its dimensions"),
        (add_empty, "has no shape"),
        (add_wrong_scale, "no scale that fits it"),
        (add_wrong_list, "not references to scales"),
        (add_bytes, "damaged"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_no_run_holds_is_refused(path: Path, change, what: str) -> None:
    write_with_h5py(path, change)
    with pytest.raises(StoreError, match=what) as caught:
        store.open_run(path)
    assert str(path) in caught.value.seen
    assert caught.value.hint


def test_names_of_several_lines_make_errors_of_three(path: Path) -> None:
    write_with_h5py(path, lambda file: file.create_dataset("a\nb\u2028c", data=np.zeros(2, "c8")))
    with pytest.raises(StoreError, match="neither numbers nor text") as caught:
        store.open_run(path)
    assert len(str(caught.value).splitlines()) == 3
    assert caught.value.seen == f"{path}: a b c"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (add_huge_chunk, "keeps data in pieces"),
        (add_many_fills, "declares data that was never written"),
        (add_foreign_filter, "compressed in a way that no run is"),
        (add_index, "keeps data in pieces"),
        (add_many_attributes, "keeps attributes as no run does"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_other_layouts_are_left_to_the_library(path: Path, change, what: str) -> None:
    write_with_h5py(path, change)
    with pytest.raises(ForeignLayoutError, match=what):
        decode(path.read_bytes())


def test_one_long_text_under_many_labels_is_refused(path: Path) -> None:
    """Labels are pointers: a small file can declare any amount of text."""
    count, text = 20_000, "x" * 60_000
    write_with_h5py(path, lambda file: file.create_dataset("x", data=labels(text, *["a"] * count)))
    content = path.read_bytes()
    with h5py.File(path) as file:
        start = file["x"].id.get_offset()
    pointer = content[start : start + 16]
    path.write_bytes(content[:start] + pointer * (count + 1) + content[start + 16 * (count + 1) :])
    begun = time.monotonic()
    with pytest.raises(StoreError, match="more data than it can hold"):
        store.open_run(path)
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not HDF5"),
        (b"PK\x03\x04", "not HDF5"),
        (b"\x89HDF\r\n\x1a\n", "damaged"),
        (b"\x89HDF\r\n\x1a\n\x03\x08\x08" + bytes(100), "library cannot read it"),
        (
            b"\x89HDF\r\n\x1a\n\x03\x08\x08" + bytes(9) + b"\xff" * 8 + bytes(99),
            "library cannot read it",
        ),
    ],
)
def test_what_is_not_hdf5_is_refused(path: Path, content: bytes, what: str) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError, match=what):
        store.open_run(path)


def test_a_run_that_another_program_added_to_opens(path: Path) -> None:
    store.write(full_run(), path)
    with h5py.File(path, "r+", libver=("v110", "v110")) as file:
        for index in range(20):
            file.attrs[f"note{index}"] = "of the user"
        file.create_dataset("more/item", data=np.arange(4)).make_scale("item")
        more = file.create_dataset("more/numbers", data=np.arange(4.0))
        more.dims[0].attach_scale(file["more/item"])
        file["loss"].attrs["note"] = "looks odd"
    run = store.open_run(path)
    assert_same(full_run(), run)
    assert run.attributes["note19"] == "of the user"
    assert run.variables["more/numbers"].dims == ("item",)


def test_hdf5_of_other_programs_is_refused(path: Path) -> None:
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        file["x"] = np.zeros(3)
    with pytest.raises(StoreError, match="not a run of landscape") as caught:
        store.open_run(path)
    assert "format '(none)'" in caught.value.seen


def test_a_missing_file_a_folder_and_a_pipe_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, what in (("missing", "cannot be opened"), ("", "not a file"), ("pipe", "not a file")):
        with pytest.raises(StoreError, match=what) as caught:
            store.open_run(tmp_path / name)
        assert "landscape" in caught.value.hint


# Damage


@pytest.fixture(scope="module")
def image() -> bytes:
    return encode(small_run())


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_changed_bit_never_changes_what_is_read(tmp_path_factory, image: bytes, data) -> None:
    path = tmp_path_factory.getbasetemp() / "bit.h5"
    content = bytearray(seal(image))
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        found = store.open_run(path)
    except StoreError as error:
        assert len(str(error).splitlines()) == 3
    else:
        assert position >= len(image)  # the mark of the seal itself
        assert_same(small_run(), found)


def test_a_truncated_file_is_refused_wherever_it_ends(path: Path, image: bytes) -> None:
    for length in range(0, len(image), 97):
        path.write_bytes(image[:length])
        with pytest.raises(StoreError):
            store.open_run(path)


def mutate(image: bytes, random: Random) -> bytes:
    """Return the file with a few bytes flipped, overwritten, copied about, dropped or cut off."""
    content = bytearray(image)
    for _ in range(random.choice([1, 1, 2, 4, 16])):
        position = random.randrange(len(content))
        other, length = random.randrange(len(content)), random.randrange(1, 64)
        special = random.choice([0, 1, 2**31, 2**40, 2**63, 2**64 - 1, position])
        match random.randrange(6):
            case 0:
                content[position] ^= 1 << random.randrange(8)
            case 1:
                content[position] = random.choice([0, 1, 127, 128, 255])
            case 2:
                content[position : position + 8] = special.to_bytes(8, "little")
            case 3:
                content[position : position + length] = content[other : other + length]
            case 4:
                del content[position : position + length]
            case 5 if random.random() < 0.2:
                del content[max(position, 100) :]
    return bytes(content)


def read_mutated(path: Path, image: bytes, seeds: range) -> tuple[int, int]:
    """Read files that were mutated and sealed anew; return how many were read and refused."""
    read = 0
    for seed in seeds:
        path.write_bytes(seal(mutate(image, Random(seed))))
        try:
            run = store.open_run(path)
        except StoreError as error:
            assert len(str(error).splitlines()) == 3
        else:
            assert all(isinstance(v.values, np.ndarray) for v in run.variables.values())
            read += 1
    return read, len(seeds) - read


@pytest.mark.parametrize("run", [small_run(), full_run()], ids=["small", "full"])
def test_mutated_files_are_refused_or_read_in_bounded_time_and_memory(path: Path, run) -> None:
    image = encode(run)
    tracemalloc.start()
    begun = time.monotonic()
    read, refused = read_mutated(path, image, range(150))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read > 5
    assert refused > 20
    assert peak < 64 << 20
    assert time.monotonic() - begun < 60


@pytest.mark.slow
def test_thousands_of_mutated_files_are_refused_or_read(path: Path, image: bytes) -> None:
    read, refused = read_mutated(path, image, range(1000, 6000))
    assert read > 500
    assert refused > 500


@given(st.binary(max_size=400))
@settings(deadline=None)
def test_any_bytes_behind_a_superblock_are_refused(image: bytes, content: bytes) -> None:
    with pytest.raises((StoreError, ValueError)):
        decode(image[:48] + content)


def test_a_text_that_is_not_where_it_should_be_is_refused(path: Path, image: bytes) -> None:
    start = image.index(b"GCOL\1")
    for offset, broken, what in (
        (16, bytes(16), "a text is not where it should be"),
        (16, b"\1\0\1\0\0\0\0\0" + b"\xff" * 8, "ends too early"),
        (8, b"\xff" * 7 + b"\x3f", "more data than it can hold"),
        (8, bytes(8), "ends too early|not where it should be"),
    ):
        place = start + offset
        path.write_bytes(seal(image[:place] + broken + image[place + len(broken) :]))
        with pytest.raises(StoreError, match=what):
            store.open_run(path)


def test_many_names_in_a_group_are_all_read(path: Path) -> None:
    """A few names lie in the header, more in one block, most in an index of several levels."""
    for count in (1, 8, 9, 60, 400, 3000):
        names = [f"measure {'long ' * (index % 30)}{index}" for index in range(count)]
        run = Run({name: Variable((), np.array(index)) for index, name in enumerate(names)})
        found = round_trip(run, path)
        assert list(found.variables) == names
        assert [int(found[name]) for name in names] == list(range(count))


def test_h5py_finds_in_the_file_what_is_read_without_it(path: Path) -> None:
    run = round_trip(full_run(), path)
    with h5py.File(path) as file:
        for name, variable in run.variables.items():
            values = file[name][()]
            if variable.values.dtype == object:
                values = file[name].asstr()[()]
            np.testing.assert_array_equal(values, variable.values)
            scales = [] if file[name].is_scale else [dim[0].name for dim in file[name].dims]
            dims = tuple(scale.rpartition("/")[2] for scale in scales)
            assert variable.dims == (dims or (name.rpartition("/")[2],) * values.ndim)
        assert {name: file.attrs[name] for name in file.attrs} == run.attributes


# Runs that are still going on


@pytest.fixture
def going_on(path: Path) -> Path:
    """A run with a base and one of two lines in its journal, nothing folded yet."""
    from test_assembly import base, line, plan

    journal = Journal.create(Journal.path_of(path), plan().to_header())
    for unit in (base(0), line(0, "gradient")):
        journal.append(unit)
    journal.close()
    return path


def test_what_a_run_has_finished_is_shown_before_there_is_a_file(going_on: Path) -> None:
    run = store.open_run(going_on)
    assert run.source == str(going_on)
    assert not run.complete
    assert run["status"][0, 0].tolist() == [1, 1, 1]
    assert (run["status"][1] == 0).all()
    with pytest.raises(StoreError, match="cannot be opened"):
        store.open_run(going_on, include_journal=False)


def test_a_journal_newer_than_the_file_is_shown_and_an_older_one_is_not(going_on: Path) -> None:
    store.write(small_run(), going_on)
    journal = Journal.path_of(going_on)
    os.utime(journal, ns=(0, going_on.stat().st_mtime_ns + 1))
    assert "base_loss" in store.open_run(going_on)
    os.utime(journal, ns=(0, going_on.stat().st_mtime_ns - 1))
    assert_same(small_run(), store.open_run(going_on))


def test_a_run_that_has_finished_nothing_does_not_hide_the_file_it_replaces(path: Path) -> None:
    from test_assembly import plan

    store.write(small_run(), path)
    Journal.create(Journal.path_of(path), plan().to_header()).close()
    os.utime(Journal.path_of(path), ns=(0, path.stat().st_mtime_ns + 1))
    assert_same(small_run(), store.open_run(path))


def test_a_damaged_journal_does_not_hide_the_file(going_on: Path) -> None:
    store.write(small_run(), going_on)
    journal = Journal.path_of(going_on)
    journal.write_bytes(b"damaged")
    os.utime(journal, ns=(0, going_on.stat().st_mtime_ns + 1))
    assert_same(small_run(), store.open_run(going_on))
    going_on.unlink()
    with pytest.raises(StoreError, match="not a journal"):
        store.open_run(going_on)


def test_a_journal_of_no_run_is_refused(path: Path) -> None:
    Journal.create(Journal.path_of(path), {"settings": {}}).close()
    with pytest.raises(StoreError, match="does not describe a run"):
        store.open_run(path)


def test_neither_the_store_nor_the_journal_loads_torch_or_hdf5() -> None:
    code = (
        "import sys, landscape_cli.store, landscape_cli.journal, landscape_cli.assembly; "
        "sys.exit('torch' in sys.modules or 'h5py' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
