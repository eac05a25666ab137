"""Probing while training against probing the checkpoints of the same training afterwards."""

import json
import warnings

import numpy as np
import pytest
import torch
from cases import classification_data
from torch import nn

import landscape_cli as landscape
from landscape_cli import randomness
from landscape_cli.errors import CheckpointError, SpecError, StoreError
from landscape_cli.record import LiveProbe, Recorder
from landscape_cli.record.joining import join, keep_before
from sample_models.optim import BNP

SETTINGS = {
    "steps": "0.5:2:3",
    "batch_size": 8,
    "batches": 2,
    "directions": ("gradient", "random:1"),
}


def net(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, 3)
        )


def course(recorder, steps=4, model=None, after=None):
    torch.manual_seed(7)
    model = model or net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if after is not None:
        after(model, optimizer)
    x, y = classification_data().tensors
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if recorder is not None:
            recorder.step(model, optimizer=optimizer, loss=loss)
    return model


def equal(first, second):
    states = first.state_dict(), second.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def live(folder, **options):
    probe = LiveProbe(classification_data(), **{**SETTINGS, **options})
    return Recorder(folder, every=2, probe=probe)


def test_the_run_is_that_of_the_checkpoints_probed_afterwards(tmp_path):
    with live(tmp_path / "live", keep_checkpoints=True) as recorder:
        course(recorder)
    found = landscape.open_run(tmp_path / "live" / "run.h5")
    wanted = landscape.probe(
        recorder.paths, model=net(seed=1), data=classification_data(), lr=None, **SETTINGS
    )
    assert found.complete
    assert set(found) == set(wanted)
    for path in wanted:
        if wanted[path].dtype.kind == "f":
            # The same arithmetic on the same batches: equal but for how threads split sums.
            near = np.allclose(found[path], wanted[path], rtol=1e-5, atol=1e-7, equal_nan=True)
            assert near, path
        else:
            assert found[path].tolist() == wanted[path].tolist(), path
    for name in ("sample_indices_sha256", "data_sha256", "seed", "dtype"):
        assert found.attributes[name] == wanted.attributes[name]


def test_no_checkpoints_are_kept_unless_asked_for(tmp_path):
    with live(tmp_path) as recorder:
        course(recorder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history.csv", "run.h5"]
    assert recorder.paths == []


def test_without_checkpoints_the_hash_is_of_the_weights_alone(tmp_path):
    for name in ("first", "second"):
        with live(tmp_path / name) as recorder:
            course(recorder)
    first, second = (landscape.open_run(tmp_path / name / "run.h5") for name in ("first", "second"))
    hashes = first.labels("checkpoint_sha256")
    assert hashes == second.labels("checkpoint_sha256")
    assert len(set(hashes)) == 2


def test_training_is_the_same_with_and_without_probing(tmp_path):
    def state(recorder):
        model = course(recorder)
        return model, randomness.capture(), [p.grad.clone() for p in model.parameters()]

    plain, probed = state(None), state(live(tmp_path))
    assert equal(plain[0], probed[0])
    assert plain[1] == probed[1]
    assert all(torch.equal(a, b) for a, b in zip(plain[2], probed[2], strict=True))


def test_the_statistics_of_bnp_do_not_see_the_probe(tmp_path):
    plain = course(None, after=BNP)
    assert equal(plain, course(live(tmp_path), after=BNP))


def test_the_file_is_whole_after_every_recorded_step(tmp_path):
    recorder = live(tmp_path)
    model = course(recorder, steps=2)
    assert landscape.open_run(tmp_path / "run.h5")["training_step"].tolist() == [2]
    course(recorder, steps=2, model=model)
    run = landscape.open_run(tmp_path / "run.h5")
    assert run["training_step"].tolist() == [2, 4]
    assert run.labels("checkpoint") == ["step-000002", "step-000004"]
    assert run["learning_rate"].tolist() == [0.1, 0.1]
    assert run.settings["lr"] is None


def test_resume_goes_on_with_the_run_and_replaces_later_steps(tmp_path):
    with live(tmp_path) as recorder:
        course(recorder, steps=6)
    probe = LiveProbe(classification_data(), **SETTINGS)
    again = Recorder(tmp_path, every=2, probe=probe, existing="resume")
    assert again.last_step == 6
    again.step(net(), step=4, learning_rate=0.1)
    assert landscape.open_run(tmp_path / "run.h5")["training_step"].tolist() == [2, 4]


def test_a_run_in_the_folder_is_a_recording(tmp_path):
    course(live(tmp_path), steps=2)
    (tmp_path / "history.csv").unlink(missing_ok=True)
    with pytest.raises(SpecError, match="holds a recording"):
        live(tmp_path)


def test_wrapped_models_are_measured_as_what_they_wrap(tmp_path):
    recorder = live(tmp_path)
    recorder.step(torch.compile(net(), backend="eager"), step=2, learning_rate=0.1)
    with live(tmp_path / "plain") as plain:
        plain.step(net(), step=2, learning_rate=0.1)
    first, second = (landscape.open_run(f / "run.h5") for f in (tmp_path, tmp_path / "plain"))
    assert np.array_equal(first["loss"], second["loss"])


def test_the_first_step_that_cannot_be_measured_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="learning rate"):
        live(tmp_path).step(net(), step=2)


def test_a_later_step_that_cannot_be_measured_is_left_out_with_a_warning(tmp_path):
    recorder, model = live(tmp_path), net()
    recorder.step(model, step=2, learning_rate=0.1)
    with pytest.warns(RuntimeWarning, match="step 4 is not measured"):
        recorder.step(model.requires_grad_(False), step=4, learning_rate=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorder.step(model.requires_grad_(True), step=6, learning_rate=0.1)
    assert landscape.open_run(tmp_path / "run.h5")["training_step"].tolist() == [2, 6]


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.1}, {"directions": "update"}, {"steps": "4:1:3"}, {"norm_mode": "eval"},
        {"step": 1}, {"device": "cpu,cpu"}, {"workers": 2},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused_before_training(options):
    with pytest.raises(SpecError):
        LiveProbe(classification_data(), **options)


def runs():
    for seed in (1, 2):
        yield landscape.probe(
            model=net(seed), data=classification_data(), lr=0.1, loss="cross-entropy", steps="1:2:2"
        )


def test_joined_runs_are_along_their_checkpoints():
    first, second = runs()
    both = join([first, second])
    assert both["loss"].shape == (2, 1, 2)
    assert np.array_equal(both["loss"][1], second["loss"][0])
    assert both["step_multiple"].tolist() == first["step_multiple"].tolist()
    assert json.loads(both.attributes["settings"])["loss"] == "cross-entropy"


def test_runs_with_other_steps_cannot_be_joined():
    first, _ = runs()
    other = landscape.probe(model=net(), data=classification_data(), lr=0.1, steps="1:3:2")
    with pytest.raises(StoreError, match="more than their checkpoints") as caught:
        join([first, other])
    assert caught.value.seen == "step_multiple"


def test_what_only_one_run_has_is_blank_in_the_other():
    first, second = runs()
    del second.variables["noise_floor"]
    floor = join([first, second])["noise_floor"]
    assert np.isfinite(floor[0])
    assert np.isnan(floor[1])


def test_keeping_what_lies_before_a_step():
    first, second = runs()
    first["training_step"][:] = 1
    second["training_step"][:] = 2
    both = join([first, second])
    assert keep_before(both, 2)["loss"].shape == (1, 1, 2)
    assert keep_before(both, 1) is None
