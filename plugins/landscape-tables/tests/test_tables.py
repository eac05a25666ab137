"""The adapter against the numbers that were written, in every format; its refusals."""

from importlib import metadata

import numpy as np
import pytest
import torch

pytest.importorskip("pyarrow", reason="pyarrow is not installed")

import pyarrow as pa
from landscape_tables import open_table
from pyarrow import csv, feather, ipc, parquet

from landscape_cli import batches
from landscape_cli.adapters.conformance import check_data_adapter
from landscape_cli.errors import AdapterError

ROWS = 23


def numbers():
    rng = np.random.default_rng(0)
    return rng.standard_normal((ROWS, 3)).astype(np.float32), rng.integers(0, 4, ROWS)


def table():
    inputs, targets = numbers()
    columns = {f"x{i}": inputs[:, i] for i in range(3)}
    return pa.table({**columns, "y": targets, "name": [f"row {i}" for i in range(ROWS)]})


def write_arrow(content, path):
    with pa.OSFile(str(path), "wb") as sink, ipc.new_file(sink, content.schema) as writer:
        writer.write_table(content, max_chunksize=5)


def write_stream(content, path):
    with pa.OSFile(str(path), "wb") as sink, ipc.new_stream(sink, content.schema) as writer:
        writer.write_table(content, max_chunksize=5)


WRITERS = {
    "a.parquet": lambda content, path: parquet.write_table(content, path, row_group_size=4),
    "a.arrow": write_arrow,
    "stream.arrow": write_stream,
    "a.feather": feather.write_feather,
    "a.csv": csv.write_csv,
    "a.tsv": lambda content, path: csv.write_csv(content, path, csv.WriteOptions(delimiter="\t")),
}


def stacked(data):
    pairs = [data[index] for index in range(len(data))]
    return torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs])


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_numbers_that_were_written(tmp_path, name):
    WRITERS[name](table(), tmp_path / name)
    inputs, targets = stacked(open_table(str(tmp_path / name)))
    assert np.array_equal(inputs.numpy(), numbers()[0])
    assert np.array_equal(targets.numpy(), numbers()[1])
    assert (inputs.dtype, targets.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
def test_the_adapter_conforms(tmp_path, name):
    WRITERS[name](table(), tmp_path / name)
    check_data_adapter(open_table, str(tmp_path / name), x="x0,x2")


def test_a_folder_is_its_files_one_after_another(tmp_path):
    content = table()
    parquet.write_table(content.slice(0, 10), tmp_path / "0.parquet")
    csv.write_csv(content.slice(10), tmp_path / "1.csv")
    (tmp_path / "notes.txt").write_text("not a table")
    inputs, targets = stacked(open_table(str(tmp_path)))
    assert np.array_equal(inputs.numpy(), numbers()[0])
    assert np.array_equal(targets.numpy(), numbers()[1])


def test_only_the_row_groups_that_are_used_are_read(tmp_path, monkeypatch):
    parquet.write_table(table(), tmp_path / "a.parquet", row_group_size=4)
    read = []
    original = parquet.ParquetFile.read_row_group

    def spy(self, number, **options):
        read.append((number, tuple(options["columns"])))
        return original(self, number, **options)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", spy)
    data = open_table(str(tmp_path / "a.parquet"), x="x1")
    assert read == []
    assert [float(data[i][0]) for i in (9, 8, -1)] == list(numbers()[0][[9, 8, -1], 1])
    assert read == [(2, ("x1", "y")), (5, ("x1", "y"))]


def test_columns_are_joined_in_the_order_in_which_they_are_named(tmp_path):
    parquet.write_table(table(), tmp_path / "a.parquet")
    inputs, _ = stacked(open_table(str(tmp_path / "a.parquet"), x="x2,x*"))
    assert np.array_equal(inputs.numpy(), numbers()[0][:, [2, 0, 1]])


def test_lists_keep_their_shape_and_tokens_stay_integers(tmp_path):
    pictures = [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [[1.0] * 3] * 2]
    tokens = [[5, 6, 7], [8, 9, 10]]
    content = {"x_picture": pictures, "tokens": tokens, "next": tokens, "y": [1.5, 2.5]}
    parquet.write_table(pa.table(content), tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    inputs, targets = stacked(open_table(path))
    assert inputs.tolist() == pictures
    assert (targets.dtype, targets.tolist()) == (torch.float32, [1.5, 2.5])
    inputs, targets = stacked(open_table(path, x="tokens", y="next"))
    assert (inputs.dtype, targets.dtype) == (torch.int64, torch.int64)
    assert inputs.tolist() == targets.tolist() == tokens
    assert open_table(path, x="tokens", dtype="float64")[0][0].dtype == torch.float64
    assert open_table(path, x="tokens,x*")[0][0].shape == (9,)


def test_texts_are_classes_numbered_over_all_files(tmp_path):
    for number, names in enumerate((["dog", "ant"], ["cat", "dog"])):
        content = pa.table({"x": [1.0, 2.0], "y": pa.array(names).dictionary_encode()})
        parquet.write_table(content, tmp_path / f"{number}.parquet")
    data = open_table(str(tmp_path))
    assert data.columns.classes == ("ant", "cat", "dog")
    assert [int(y) for _, y in data] == [2, 0, 1, 2]


def test_truth_values_are_classes(tmp_path):
    parquet.write_table(pa.table({"x": [1, 2], "y": [True, False]}), tmp_path / "a.parquet")
    inputs, targets = stacked(open_table(str(tmp_path / "a.parquet")))
    assert inputs.dtype == torch.float32
    assert targets.tolist() == [1, 0]


def test_a_missing_value_is_an_error_that_names_row_and_column(tmp_path):
    parquet.write_table(pa.table({"x": [1.0, None], "y": [0, 1]}), tmp_path / "a.parquet")
    data = open_table(str(tmp_path / "a.parquet"))
    assert float(data[0][0]) == 1.0
    with pytest.raises(AdapterError) as caught:
        batches.draw(data, 2, 1, seed=0)
    assert caught.value.seen == "row 1, column x"


@pytest.mark.parametrize(
    ("name", "options", "what", "hint"),
    [
        ("missing.parquet", {}, "no table there", ".parquet"),
        ("empty", {}, "no table there", ".parquet"),
        ("notes.txt", {}, "no such format", ".parquet"),
        ("broken.parquet", {}, "cannot be read", "pyarrow"),
        ("broken.arrow", {}, "cannot be read", "pyarrow"),
        ("good.csv", {"x": "z*"}, "no column of the table is named 'z*'", "x=NAME"),
        ("good.csv", {"y": "label"}, "no column of the table is named 'label'", "y=NAME"),
        ("good.csv", {"dtype": "float16"}, "'dtype' cannot be", "float64"),
        ("header.csv", {}, "no rows", "check the file"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_try(tmp_path, name, options, what, hint):
    (tmp_path / "empty").mkdir()
    for broken in ("notes.txt", "broken.parquet", "broken.arrow"):
        (tmp_path / broken).write_bytes(b"PAR1 and then nothing")
    csv.write_csv(table(), tmp_path / "good.csv")
    csv.write_csv(table().slice(0, 0), tmp_path / "header.csv")
    with pytest.raises(AdapterError) as caught:
        open_table(str(tmp_path / name), **options)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert caught.value.seen


def test_texts_and_ragged_lists_are_no_inputs(tmp_path):
    ragged = pa.table({"x": [[[1.0], [1.0, 2.0]]], "name": ["a"], "y": [0]})
    parquet.write_table(ragged, tmp_path / "a.parquet")
    for name in ("x", "name"):
        with pytest.raises(AdapterError, match="not a number"):
            open_table(str(tmp_path / "a.parquet"), x=name)[0]


def test_the_adapter_is_registered_as_tables():
    (entry,) = metadata.entry_points(group="landscape_cli.data", name="tables")
    assert entry.load() is open_table
