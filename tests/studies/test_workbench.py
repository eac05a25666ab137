"""What the workbench keeps, what it makes anew, and what it refuses."""

from __future__ import annotations

import pytest

from landscape_cli.errors import SpecError
from landscape_cli.studies.workbench import DATA_ROOT, Workbench

MODEL = "sample:mlp?hidden=4&in_features=10&classes=10&seed=0"
DATA = "sample:gaussian?samples=32"
SETTINGS = {"steps": 4, "every": 2, "loss": "mse", "lr": 0.01, "batch_size": 8}


@pytest.fixture
def bench(tmp_path) -> Workbench:
    return Workbench(tmp_path, "smoke")


def modified(trained) -> list[int]:
    return [path.stat().st_mtime_ns for path in trained.checkpoints]


def test_the_same_training_is_used_again(bench) -> None:
    first = bench.train("one", MODEL, DATA, **SETTINGS)
    again = bench.train("one", MODEL, DATA, **SETTINGS)
    assert len(first.checkpoints) == 3
    assert modified(again) == modified(first)
    assert again.losses.tolist() == first.losses.tolist()


@pytest.mark.parametrize("change", [{"lr": 0.02}, {"seed": 1}, {"steps": 6}])
def test_another_training_takes_its_place(bench, change) -> None:
    first = bench.train("one", MODEL, DATA, **SETTINGS)
    before = modified(first)
    other = bench.train("one", MODEL, DATA, **{**SETTINGS, **change})
    assert modified(other)[:3] != before


def test_an_unfinished_training_is_made_again(bench) -> None:
    first = bench.train("one", MODEL, DATA, **SETTINGS)
    before = modified(first)
    (first.checkpoints[0].parent / "training.json").unlink()
    assert modified(bench.train("one", MODEL, DATA, **SETTINGS)) != before


def test_the_same_probe_is_used_again_and_another_takes_its_place(bench) -> None:
    trained = bench.train("one", MODEL, DATA, **SETTINGS)
    first = bench.probe("one", trained, steps="0.5:2:3", batch_size=16)
    stamp = bench.runs["one"].stat().st_mtime_ns
    again = bench.probe("one", trained, steps="0.5:2:3", batch_size=16)
    assert bench.runs["one"].stat().st_mtime_ns == stamp
    assert again["loss"].tolist() == first["loss"].tolist()
    other = bench.probe("one", trained, steps="0.5:2:4", batch_size=16)
    assert other["loss"].shape[-1] == 4


def test_a_probe_sees_the_training_it_is_of(bench) -> None:
    trained = bench.train("one", MODEL, DATA, **SETTINGS)
    run = bench.probe("one", trained, steps="0.5:2:3", batch_size=32)
    assert run["training_step"].tolist() == [0, 2, 4]
    assert run["learning_rate"].tolist() == pytest.approx([0.01] * 3)
    assert run.settings["loss"] == "mse"


def test_the_published_data_are_never_replaced(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv(DATA_ROOT, raising=False)
    with pytest.raises(SpecError) as caught:
        Workbench(tmp_path, "paper").images()
    assert "published data are needed" in caught.value.what
    assert "--data-root" in caught.value.hint


def test_a_folder_that_is_not_there_is_named(tmp_path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(SpecError) as caught:
        Workbench(tmp_path, "paper", data_root=missing).images()
    assert caught.value.seen == str(missing)


def test_the_folder_of_the_published_data_comes_from_the_environment(tmp_path, monkeypatch) -> None:
    folder = tmp_path / "my data"
    folder.mkdir()
    monkeypatch.setenv(DATA_ROOT, str(folder))
    images = Workbench(tmp_path, "paper").images("cifar10")
    assert images.train == f"sample:cifar10?root={str(folder).replace(' ', '%20')}"
    assert images.test.endswith("&split=test")
    assert (images.options, images.features) == ("in_channels=3&image_size=32", 3072)


@pytest.mark.parametrize("preset", ["smoke", "laptop"])
def test_the_smaller_presets_take_real_digits(tmp_path, preset) -> None:
    images = Workbench(tmp_path, preset).images()
    assert images.train == "sklearn:digits"
    assert images.features == 64


def test_intervals_have_at_least_five_seeds_where_they_are_meant_to_tell_something(
    tmp_path,
) -> None:
    assert len(Workbench(tmp_path, "laptop").seeds) >= 5
    assert len(Workbench(tmp_path, "paper").seeds) >= 5
