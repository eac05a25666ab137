"""A run is measured again from its record: what agrees, what does not, and what is refused."""

from __future__ import annotations

from pathlib import Path

import cases
import h5py
import numpy as np
import pytest
from safetensors.torch import save_file

import landscape_cli as landscape
from landscape_cli.errors import SpecError, StoreError
from landscape_cli.verify import QUANTITIES, verify

MODEL = """
import cases

def make():
    return cases.Awkward()

def make_deeper():
    return cases.Dropping()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODEL)
    data = cases.awkward_data()
    x, y = (tensor.numpy() for tensor in data.tensors)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    (tmp_path / "steps").mkdir()
    for step in range(2):
        write_checkpoint(tmp_path / "steps" / f"step-{step}.safetensors", seed=step)
    return tmp_path


def write_checkpoint(path: Path, seed: int) -> None:
    state = cases.Awkward(seed=seed).state_dict()
    state = {name: tensor.clone() for name, tensor in state.items() if name != "again.weight"}
    save_file(state, path, metadata={"training_step": "1", "learning_rate": "0.1"})


def probe(place: Path, **settings) -> Path:
    output = place / "run.h5"
    landscape.probe(
        place / "steps",
        model=f"{place / 'mine.py'}:make",
        data=f"npz:{place / 'data.npz'}",
        output=output,
        directions=("gradient", "random:2"),
        **{"steps": "0.5:4:5", **settings},
    )
    return output


def rewrite(path: Path, change) -> None:
    """Edit a run in place, as somebody with h5py does."""
    with h5py.File(path, "r+") as file:
        change(file)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"dtype": "float64", "strategy": "stacked", "chunk": 2},
        {"steps": "auto:0.05", "norm_mode": "frozen"},
        {"measures": ("covariate_shift",), "plane": "gradient,random:0", "plane_steps": "-1:1:3"},
    ],
    ids=["plain", "stacked", "refined", "with measures"],
)
def test_a_run_agrees_with_itself(place: Path, settings: dict) -> None:
    if "plane_steps" in settings:
        settings = {**settings, "plane_steps": "-1:1:3:lin"}
    verification = verify(probe(place, **settings), points=6)
    assert verification.agrees
    assert verification.differences == ()
    assert verification.points == 6
    assert len(verification.readings) == 6 * len(QUANTITIES)
    # On one machine, with the recorded strategy, chunk and threads, every bit is the same.
    if not str(settings.get("steps")).startswith("auto"):
        assert all(reading.recorded == reading.measured for reading in verification.readings)


def test_there_are_no_more_points_than_the_run_has(place: Path) -> None:
    assert verify(probe(place), points=1000).points == 2 * 3 * 5


def test_a_number_that_was_changed_does_not_agree(place: Path) -> None:
    output = probe(place)

    def change(file) -> None:
        file["loss"][1, 2, 3] *= 1.001

    rewrite(output, change)
    verification = verify(output, points=1000)
    (wrong,) = verification.disagreeing
    assert (wrong.quantity, wrong.direction) == ("loss", "random:1")
    assert wrong.recorded == pytest.approx(wrong.measured * 1.001)
    assert not verification.agrees


def test_other_weights_at_the_same_path_are_named(place: Path) -> None:
    output = probe(place)
    write_checkpoint(place / "steps" / "step-1.safetensors", seed=7)
    verification = verify(output, points=1000)
    assert not verification.agrees
    assert [difference.what for difference in verification.differences] == ["checkpoint step-1"]
    assert {reading.checkpoint for reading in verification.disagreeing} == {"step-1"}


def test_other_data_and_another_torch_are_named(place: Path) -> None:
    output = probe(place)
    arrays = dict(np.load(place / "data.npz"))
    np.savez(place / "data.npz", x=arrays["x"] * 2, y=arrays["y"])

    def change(file) -> None:
        file.attrs["versions"] = file.attrs["versions"].replace('"torch": "', '"torch": "0.')
        file.attrs["device"] = "cuda NVIDIA Imaginary"

    rewrite(output, change)
    verification = verify(output)
    assert not verification.agrees
    assert [d.what for d in verification.differences] == ["data", "device", "torch"]


def test_a_trajectory_that_has_grown_still_agrees(place: Path) -> None:
    output = probe(place)
    write_checkpoint(place / "steps" / "early.safetensors", seed=9)
    assert verify(output, points=1000).agrees


def test_a_checkpoint_that_is_gone_is_named(place: Path) -> None:
    output = probe(place)
    (place / "steps" / "step-0.safetensors").unlink()
    with pytest.raises(StoreError, match="not there any more") as caught:
        verify(output, points=1000)
    assert "step-0" in caught.value.seen


def test_a_run_of_live_objects_is_refused(tmp_path: Path) -> None:
    output = tmp_path / "run.h5"
    data = cases.awkward_data()
    landscape.probe(model=cases.Awkward(), data=data, lr=0.1, steps="0.5:4:3", output=output)
    with pytest.raises(SpecError, match="made from objects in a program") as caught:
        verify(output)
    assert "(live Awkward)" in caught.value.seen


def test_code_that_only_the_run_names_is_executed_nowhere_else(
    place: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    output = probe(place)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    trap = elsewhere / "trap.py"
    sprung = elsewhere / "sprung"
    trap.write_text(f"open({str(sprung)!r}, 'w')\ndef make(): ...\n")
    settings = '"model": "' + str(place / "mine.py")
    rewrite(
        output,
        lambda file: file.attrs.modify(
            "settings", file.attrs["settings"].replace(settings, '"model": "' + str(trap))
        ),
    )
    with pytest.raises(SpecError, match="names a model of somebody's own") as caught:
        verify(output)
    assert f"--model {trap}:make" in caught.value.hint
    assert not sprung.exists()
    assert verify(output, named={"model": f"{place / 'mine.py'}:make"}).agrees


def test_damaged_settings_are_told(place: Path) -> None:
    output = probe(place)
    rewrite(output, lambda file: file.attrs.modify("settings", '{"batch_size": -3}'))
    with pytest.raises(StoreError, match="settings of the run cannot be used"):
        verify(output)


@pytest.mark.parametrize("points", [0, -1])
def test_the_number_of_points_is_positive(place: Path, points: int) -> None:
    with pytest.raises(SpecError, match="not positive"):
        verify(place / "run.h5", points=points)


def test_what_verify_measures_leaves_the_file_as_it_was(place: Path) -> None:
    output = probe(place)
    before = (output.read_bytes(), sorted(place.iterdir()))
    verify(output)
    assert (output.read_bytes(), sorted(place.iterdir())) == before
