"""A run that is cut off anywhere goes on and ends with the numbers of an undisturbed one."""

from __future__ import annotations

from pathlib import Path

import cases
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import landscape_cli as landscape
from landscape_cli.errors import LandscapeError, SpecError, StoreError
from landscape_cli.journal import Journal


class Interrupting:
    """Progress that raises after so many units."""

    def __init__(self, after: int) -> None:
        self.left = after

    def start(self, points: int) -> None:
        pass

    def advance(self, points: int, where: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def notice(self, text: str) -> None:
        pass


@pytest.fixture
def trajectory(tmp_path: Path) -> Path:
    folder = tmp_path / "trajectory"
    folder.mkdir()
    for step in range(3):
        model = cases.Awkward(seed=step)
        state = {n: t.clone() for n, t in model.state_dict().items() if n != "again.weight"}
        metadata = {"training_step": str(step * 10), "learning_rate": "0.1"}
        save_file(state, folder / f"step-{step}.safetensors", metadata=metadata)
    return folder


def probe(trajectory: Path, output: Path | None, **options) -> landscape.Run:
    model = cases.Awkward(seed=9)
    # Another run may choose another strategy, by timing; a resumed one keeps to what was chosen.
    arguments = {"directions": ("gradient", "random:2"), "steps": "0.5:4:12", "strategy": "plain"}
    return landscape.probe(
        trajectory, model=model, data=cases.awkward_data(), output=output, **arguments, **options
    )


def assert_same(run: landscape.Run, other: landscape.Run) -> None:
    assert set(run) == set(other)
    for path in run:
        np.testing.assert_array_equal(run[path], other[path], err_msg=path)


def test_a_trajectory_is_measured_checkpoint_by_checkpoint(trajectory: Path) -> None:
    run = probe(trajectory, None)
    assert run.complete
    assert run["training_step"].tolist() == [0, 10, 20]
    alone = landscape.probe(
        trajectory / "step-1.safetensors",
        model=cases.Awkward(),
        data=cases.awkward_data(),
        directions=("gradient", "random:2"),
        steps="0.5:4:12",
        strategy="plain",
    )
    np.testing.assert_array_equal(run["loss"][1], alone["loss"][0])
    np.testing.assert_array_equal(run["gradient_change"][1], alone["gradient_change"][0])


@pytest.mark.parametrize("after", [0, 1, 3, 7, 12, 20])
def test_a_resumed_run_ends_with_the_same_numbers(
    trajectory: Path, tmp_path: Path, after: int
) -> None:
    output = tmp_path / "run.h5"
    undisturbed = probe(trajectory, None)
    with pytest.raises(KeyboardInterrupt):
        probe(trajectory, output, progress=Interrupting(after))
    assert not landscape.open_run(output).complete
    run = probe(trajectory, output, resume=True)
    assert run.complete
    assert not Journal.path_of(output).exists()
    assert_same(run, undisturbed)


def test_resuming_a_complete_run_measures_nothing(trajectory: Path, tmp_path: Path) -> None:
    output = tmp_path / "run.h5"
    first = probe(trajectory, output)
    again = probe(trajectory, output, resume=True, progress=Interrupting(0))
    assert_same(first, again)


def test_an_output_that_exists_is_not_touched_unless_told_so(
    trajectory: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run.h5"
    probe(trajectory, output)
    before = output.read_bytes()
    with pytest.raises(SpecError, match="exists already"):
        probe(trajectory, output)
    with pytest.raises(StoreError, match="holds another run"):
        probe(trajectory, output, resume=True, seed=3)
    assert output.read_bytes() == before
    assert probe(trajectory, output, overwrite=True, seed=3).settings["seed"] == 3


def test_going_on_with_other_settings_is_refused(trajectory: Path, tmp_path: Path) -> None:
    output = tmp_path / "run.h5"
    with pytest.raises(KeyboardInterrupt):
        probe(trajectory, output, progress=Interrupting(3))
    with pytest.raises(StoreError) as caught:
        probe(trajectory, output, resume=True, batch_size=7)
    assert "batch_size was 128, is 7" in caught.value.seen


def test_a_bad_checkpoint_is_recorded_and_the_others_go_on(
    trajectory: Path, tmp_path: Path
) -> None:
    (trajectory / "step-1.safetensors").write_bytes(b"not a checkpoint")
    run = probe(trajectory, tmp_path / "run.h5")
    assert run.attributes["status"] == "partial"
    measured = run["status"].reshape(3, -1).any(axis=1)
    assert measured.sum() == 2
    assert "step-1" in run.attributes["notices"]


def test_a_checkpoint_that_is_mended_is_measured_on_a_resume(
    trajectory: Path, tmp_path: Path
) -> None:
    good = (trajectory / "step-1.safetensors").read_bytes()
    output = tmp_path / "run.h5"
    expected = probe(trajectory, None)
    with torch.no_grad(), pytest.raises(KeyboardInterrupt):
        probe(trajectory, output, progress=Interrupting(2))
    (trajectory / "step-1.safetensors").write_bytes(good)
    assert_same(probe(trajectory, output, resume=True), expected)


def test_a_run_in_which_no_checkpoint_fits_is_an_error_and_leaves_nothing(
    trajectory: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run.h5"
    probe(trajectory, output)
    before = output.read_bytes()
    wrong = {"model": torch.nn.Linear(2, 2), "data": cases.awkward_data()}
    for path in (output, tmp_path / "new.h5"):
        with pytest.raises(LandscapeError, match="no checkpoint could be measured"):
            landscape.probe(trajectory, **wrong, output=path, overwrite=True)
        assert not Journal.path_of(path).exists()
    assert not (tmp_path / "new.h5").exists()
    assert output.read_bytes() == before


def test_a_checkpoint_that_does_not_fit_says_why_and_what_to_try(trajectory: Path) -> None:
    path = trajectory / "step-0.safetensors"
    with pytest.raises(LandscapeError, match="no checkpoint could be measured") as caught:
        landscape.probe(path, model=torch.nn.Linear(4, 3), data=cases.awkward_data(), loss="mse")
    assert "are not those of the model" in caught.value.seen
    assert "inspect" not in caught.value.hint or "--model" in caught.value.hint


def test_the_folder_of_the_output_must_exist(trajectory: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="folder of the output"):
        probe(trajectory, tmp_path / "nowhere" / "run.h5")


def test_nothing_is_left_of_the_checkpoints_in_a_model_that_was_passed_in(
    trajectory: Path,
) -> None:
    model = cases.Awkward(seed=9)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    landscape.probe(trajectory, model=model, data=cases.awkward_data(), parameters="first.*")
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert [n for n, p in model.named_parameters() if not p.requires_grad] == [
        "still.weight",
        "still.bias",
    ]


def test_only_the_chosen_parameters_move(trajectory: Path) -> None:
    run = landscape.probe(
        trajectory / "step-0.safetensors",
        model=cases.Awkward(),
        data=cases.awkward_data(),
        parameters=("first.*", "leave.*"),
        freeze=("*.bias",),
    )
    assert run.attributes["parameters"] == 6 * 6 + 3 * 6
    assert run.settings["parameters"] == ["first.*", "leave.*"]


def test_nothing_that_is_kept_is_computed_while_threads_are_settled(
    trajectory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run knows its threads at once: its first site must be what it was."""
    from landscape_cli import threads
    from landscape_cli.engine import worker

    def settle(evaluate) -> int:
        evaluate()
        return 1

    monkeypatch.setattr(worker, "settle", settle)
    seen: list[int] = []
    survey = worker.Site.survey

    def watched(*arguments, **options):
        seen.append(torch.get_num_threads())
        return survey(*arguments, **options)

    monkeypatch.setattr(worker.Site, "survey", watched)
    with threads.limited(3):
        probe(trajectory, tmp_path / "run.h5")
    assert seen[0] == 3
    assert set(seen[1:]) == {1}
    assert len(seen) == 4
