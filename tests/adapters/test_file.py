"""The user's own code: imported once, under its own name, with its neighbours."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest

from landscape_cli.adapters import file
from landscape_cli.errors import AdapterError


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text)
    return path


def test_a_factory_is_called_with_the_options(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.py", "def make(width, norm='none'):\n    return width, norm")
    assert file.build_model(f"{path}:make", width=8) == (8, "none")
    assert file.build_data(f"{path}:make", width=8, norm="batch") == (8, "batch")


def test_model_and_data_of_one_file_share_one_module(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.py", "runs = []\nruns.append(1)\ndef a(): return runs\nb = a")
    assert file.load(f"{path}:a", "model")() is file.load(f"{path}:b", "data")()
    assert file.load(f"{path}:a", "model")() == [1]


def test_a_file_that_changed_runs_again(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.py", "def make(): return 1")
    assert file.build_model(f"{path}:make") == 1
    path.write_text("def make(): return 2")
    os.utime(path, ns=(10**18, 10**18))
    assert file.build_model(f"{path}:make") == 2


def test_modules_next_to_the_file_are_found(tmp_path: Path) -> None:
    write(tmp_path, "neighbour_8f3a.py", "value = 7")
    path = write(tmp_path, "mine.py", "import neighbour_8f3a as n\ndef make(): return n.value")
    before = list(sys.path)
    assert file.build_model(f"{path}:make") == 7
    assert sys.path == before


def test_a_factory_may_import_its_neighbours_when_it_is_called(tmp_path: Path) -> None:
    write(tmp_path, "late_8f3a.py", "value = 9")
    path = write(
        tmp_path, "mine.py", "def make():\n    import late_8f3a\n    return late_8f3a.value"
    )
    assert file.build_model(f"{path}:make") == 9


def test_neighbours_of_the_same_name_in_two_folders_are_two_modules(tmp_path: Path) -> None:
    text = "import twin_8f3a as t\ndef make(): return t.value\n"
    late = "def late():\n    import twin_8f3a\n    return twin_8f3a.value"
    for folder, value in (("one", 1), ("two", 2)):
        write(tmp_path / folder, "twin_8f3a.py", f"value = {value}")
        write(tmp_path / folder, "mine.py", text + late)
    for _ in range(2):
        for folder, value in (("one", 1), ("two", 2)):
            assert file.build_model(f"{tmp_path / folder / 'mine.py'}:make") == value
            assert file.build_model(f"{tmp_path / folder / 'mine.py'}:late") == value


def test_packages_that_are_there_for_everybody_are_imported_once(tmp_path: Path) -> None:
    import landscape_cli

    root = Path(landscape_cli.__file__).parent.parent
    text = "import landscape_cli.errors as e\ndef make(): return e.LandscapeError"
    for folder in ("one", "two"):
        path = write(tmp_path / folder, "mine.py", text)
        assert file.build_model(f"{path}:make") is landscape_cli.LandscapeError
    assert not file._newcomers(root, {name for name in sys.modules if "." not in name})


def test_classes_of_the_file_can_be_pickled(tmp_path: Path) -> None:
    text = "import dataclasses\n@dataclasses.dataclass\nclass Point:\n    x: int = 1\n"
    path = write(tmp_path, "mine.py", text)
    point = file.build_model(f"{path}:Point", x=3)
    assert pickle.loads(pickle.dumps(point)) == point


@pytest.mark.parametrize(
    ("text", "name", "what", "seen"),
    [
        ("def make(): pass", "mak", "has no function 'mak'", "make"),
        ("import math", "make", "has no function 'make'", "(no functions)"),
        ("make = 5", "make", "'make' in mine.py cannot be called", "a int"),
        ("\n\n1 / 0", "make", "raised an error while it was imported", "division by zero, mine.py"),
        ("\n\n1 / 0", "make", "raised an error", "line 3"),
        ("def make(:", "make", "raised an error", "SyntaxError: invalid syntax (mine.py, line 1)"),
        ("import sys\nsys.exit('no')", "make", "raised an error", "SystemExit: no, mine.py line 2"),
        ("import gone_8f3a", "make", "raised an error", "No module named 'gone_8f3a'"),
    ],
)
def test_what_is_wrong_with_the_file_is_told(
    tmp_path: Path, text: str, name: str, what: str, seen: str
) -> None:
    path = write(tmp_path, "mine.py", text)
    with pytest.raises(AdapterError) as caught:
        file.load(f"{path}:{name}", "model")
    assert what in caught.value.what
    assert seen in caught.value.seen
    assert caught.value.hint


def test_the_closest_function_is_suggested(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.py", "def make_model(): pass\ndef other(): pass")
    with pytest.raises(AdapterError) as caught:
        file.load(f"{path}:make_modle", "model")
    assert caught.value.hint == f"--model {path}:make_model"


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="the file with the loss does not exist"):
        file.load(f"{tmp_path / 'gone.py'}:f", "loss")


def test_a_file_that_fails_leaves_no_module_behind(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.py", "1 / 0")
    before = set(sys.modules)
    with pytest.raises(AdapterError):
        file.load(f"{path}:make", "model")
    assert set(sys.modules) == before
