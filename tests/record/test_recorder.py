"""The recorder in plain loops: what it writes, when, and what it leaves alone."""

import doctest
import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from landscape_cli import randomness
from landscape_cli.errors import CheckpointError, SpecError
from landscape_cli.record import files, read_history, recorder, schedule
from landscape_cli.record.recorder import Recorder


def net():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))


def train(model, recorder, steps, *, lr=0.1, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 3)).square().mean()
        loss.backward()
        optimizer.step()
        recorder.step(model, optimizer=optimizer, loss=loss, **options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def metadata(path):
    with safe_open(path, "pt") as file:
        return file.metadata()


def test_two_lines_in_a_loop_write_a_trajectory(tmp_path):
    recorder = Recorder(tmp_path / "runs" / "bn", every=2)
    train(net(), recorder, 5)
    recorder.close()
    assert names(recorder.folder) == [
        "history.csv",
        "step-000002.safetensors",
        "step-000004.safetensors",
    ]
    assert recorder.paths == [recorder.folder / n for n in names(recorder.folder)[1:]]


def test_a_checkpoint_holds_the_weights_of_its_step(tmp_path):
    model, recorder = net(), Recorder(tmp_path, every=1)
    kept = []
    for _ in range(3):
        train(model, recorder, 1)
        kept.append({name: t.clone() for name, t in model.state_dict().items()})
    for path, wanted in zip(recorder.paths, kept, strict=True):
        found = load_file(path)
        assert list(found) != []
        assert set(found) == set(wanted)
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_metadata_say_step_rate_loss_and_specs(tmp_path):
    specs = {"model": "sample:vgg?norm=batch", "data": "sklearn:digits", "loss": "mse"}
    path = Recorder(tmp_path, every=1, specs=specs).step(
        net(), learning_rate=0.1, loss=torch.tensor(0.25, requires_grad=True), step=7
    )
    assert metadata(path) == {
        "format": "pt",
        "training_step": "7",
        "learning_rate": "0.1",
        "loss": "0.25",
        "model": "sample:vgg?norm=batch",
        "data": "sklearn:digits",
        "loss_spec": "mse",
    }


def test_the_learning_rate_survives_to_the_last_bit(tmp_path):
    path = Recorder(tmp_path, every=1).step(net(), learning_rate=0.1 + 0.2)
    assert float(metadata(path)["learning_rate"]) == 0.1 + 0.2


def test_an_unknown_learning_rate_is_left_out(tmp_path):
    path = Recorder(tmp_path, every=1).step(net())
    assert "learning_rate" not in metadata(path)


def test_the_rate_of_the_first_group_is_taken_and_a_given_one_wins(tmp_path):
    model = net()
    groups = [{"params": model[0].parameters(), "lr": 0.5}, {"params": model[2].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    recorder = Recorder(tmp_path, every=1)
    assert metadata(recorder.step(model, optimizer=optimizer))["learning_rate"] == "0.5"
    path = recorder.step(model, optimizer=optimizer, learning_rate=torch.tensor(2.0))
    assert metadata(path)["learning_rate"] == "2.0"


def test_tied_tensors_are_written_once_and_named(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    path = Recorder(tmp_path, every=1).step(model)
    assert json.loads(metadata(path)["tied"]) == {"1.weight": "0.weight"}
    assert sorted(load_file(path)) == ["0.bias", "0.weight", "1.bias"]


def test_steps_are_counted_from_one_and_may_be_given(tmp_path):
    model, recorder = net(), Recorder(tmp_path, every=1)
    for step in (0, None, None, 10, None):
        recorder.step(model, step=step)
    assert [metadata(path)["training_step"] for path in recorder.paths] == [
        "0",
        "1",
        "2",
        "10",
        "11",
    ]


def test_a_step_that_does_not_go_on_is_refused(tmp_path):
    recorder = Recorder(tmp_path, every=1)
    recorder.step(net(), step=3)
    with pytest.raises(SpecError, match="not larger than the last") as caught:
        recorder.step(net(), step=3)
    assert caught.value.seen == "3 after 3"


def test_the_history_has_every_step(tmp_path):
    with Recorder(tmp_path, at=(3,)) as recorder:
        for step in range(1, 6):
            recorder.step(net(), learning_rate=0.1, loss=1 / step, metrics={"accuracy": step / 10})
    found = read_history(tmp_path)
    assert found["step"].tolist() == [1, 2, 3, 4, 5]
    assert found["loss"].tolist() == [1 / step for step in range(1, 6)]
    assert found["accuracy"].tolist() == [step / 10 for step in range(1, 6)]
    assert found["learning_rate"].tolist() == [0.1] * 5


def test_the_history_is_kept_when_training_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), Recorder(tmp_path, at=(100,)) as recorder:
        recorder.step(net(), loss=1.0)
        raise ZeroDivisionError
    assert read_history(tmp_path)["loss"].tolist() == [1.0]


def test_two_lines_are_enough_for_the_whole_history(tmp_path):
    program = (
        "import torch, landscape_cli as landscape\n"
        f"recorder = landscape.Recorder({str(tmp_path)!r}, at=(100,))\n"
        "for _ in range(5): recorder.step(torch.nn.Linear(2, 1), loss=1.0)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert read_history(tmp_path)["step"].tolist() == [1, 2, 3, 4, 5]


def test_training_is_the_same_with_and_without_a_recorder(tmp_path):
    def course(recorder):
        torch.manual_seed(0)
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 3)).square().mean()
            loss.backward()
            optimizer.step()
            if recorder:
                recorder.step(model, optimizer=optimizer, loss=loss)
        return model

    plain, recorded = course(None), course(Recorder(tmp_path, every=1))
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, recorded.state_dict()[name])


def test_a_step_leaves_random_state_mode_and_gradients_alone(tmp_path):
    model = net()
    model(torch.randn(4, 3)).sum().backward()
    model[1].eval()
    gradients = [p.grad for p in model.parameters()]
    values = [p.grad.clone() for p in model.parameters()]
    flags = [module.training for module in model.modules()]
    pointers = [p.data_ptr() for p in model.parameters()]
    before = randomness.capture()
    Recorder(tmp_path, every=1).step(model)
    assert randomness.capture() == before
    assert [module.training for module in model.modules()] == flags
    assert all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))
    assert all(torch.equal(g, v) for g, v in zip(gradients, values, strict=True))
    assert [p.data_ptr() for p in model.parameters()] == pointers


def test_a_second_recording_in_one_folder_is_refused(tmp_path):
    Recorder(tmp_path, every=1).step(net())
    with pytest.raises(SpecError, match="holds a recording already") as caught:
        Recorder(tmp_path)
    assert "overwrite" in caught.value.hint


def test_overwrite_deletes_the_recording_and_nothing_else(tmp_path):
    (tmp_path / "step-notes.safetensors").write_text("mine")
    with Recorder(tmp_path, every=1) as recorder:
        train(net(), recorder, 3)
    again = Recorder(tmp_path, every=1, existing="overwrite")
    assert names(tmp_path) == ["step-notes.safetensors"]
    assert again.step(net()).name == "step-000001.safetensors"


def test_resume_goes_on_counting_and_replaces_what_is_gone_through_again(tmp_path):
    with Recorder(tmp_path, every=2) as recorder:
        train(net(), recorder, 5)
    again = Recorder(tmp_path, every=2, existing="resume")
    assert again.last_step == 4
    with again:
        train(net(), again, 2)
    assert read_history(tmp_path)["step"].tolist() == [1, 2, 3, 4, 5, 6]
    earlier = Recorder(tmp_path, every=2, existing="resume")
    with earlier:
        earlier.step(net(), step=3, loss=9.0)
    assert [files.step_of(path) for path in earlier.paths] == [2]
    assert names(tmp_path) == ["history.csv", "step-000002.safetensors"]
    assert read_history(tmp_path)["loss"].tolist()[2:] == [9.0]


def test_resume_starts_where_nothing_is(tmp_path):
    recorder = Recorder(tmp_path / "new", every=1, existing="resume")
    assert recorder.step(net()).name == "step-000001.safetensors"


def test_only_the_first_process_writes(tmp_path):
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    torch.distributed.init_process_group("fake", store=fake.FakeStore(), rank=1, world_size=2)
    try:
        with Recorder(tmp_path / "second", every=1) as recorder:
            assert recorder.step(net(), loss=1.0) is None
    finally:
        torch.distributed.destroy_process_group()
    assert not (tmp_path / "second").exists()


def test_a_failed_write_leaves_no_file_and_says_why(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path, every=1)
    recorder.step(net())

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="cannot be written") as caught:
        recorder.step(net())
    assert "No space left" in caught.value.seen
    assert names(tmp_path) == ["step-000001.safetensors"]
    assert load_file(tmp_path / "step-000001.safetensors")


def test_what_a_killed_recorder_left_is_removed(tmp_path):
    Recorder(tmp_path, every=1).step(net())
    left = tmp_path / ".step-000002.safetensors.tmp"
    left.write_bytes(b"half")
    Recorder(tmp_path, every=1, existing="resume")
    assert names(tmp_path) == ["step-000001.safetensors"]


def test_steps_beyond_six_digits_are_still_in_order(tmp_path):
    recorder = Recorder(tmp_path, every=1)
    for step in (999_999, 1_000_000, 12_345_678):
        recorder.step(net(), step=step)
    assert files.recorded(tmp_path) == recorder.paths


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"existing": "replace"}, "existing="),
        ({"specs": {"optimizer": "sgd"}}, "no spec has this name"),
        ({"every": 0}, "every="),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(tmp_path, arguments, what):
    with pytest.raises(SpecError) as caught:
        Recorder(tmp_path / "runs", **arguments)
    assert what in caught.value.what
    assert not (tmp_path / "runs").exists()


def test_a_rate_that_is_no_number_and_a_folder_that_is_a_file_are_refused(tmp_path):
    with pytest.raises(SpecError, match="not finite"):
        Recorder(tmp_path / "runs").step(net(), learning_rate=float("nan"))
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match="is a file"):
        Recorder(tmp_path / "file")


@pytest.mark.parametrize("module", [recorder, schedule, files])
def test_the_examples_run(module):
    failures, tried = doctest.testmod(module)
    assert failures == 0
    assert tried > 0
