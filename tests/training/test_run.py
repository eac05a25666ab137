"""Training against a loop that shares no code with it, and what it leaves behind."""

import doctest
import json
from importlib import metadata

import numpy as np
import pytest
import torch
from cases import Dropping, classification_data
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from landscape_cli import randomness
from landscape_cli.adapters.building import build_model
from landscape_cli.errors import AdapterError, MeasurementError, SpecError
from landscape_cli.training import run, spec, train
from landscape_cli.training.run import SUMMARY

MLP = "sample:mlp?in_features=4&hidden=8&classes=3&norm=batch"


class Notices:
    def __init__(self):
        self.points, self.advanced, self.texts = 0, 0, []

    def start(self, points):
        self.points = points

    def advance(self, points, where):
        self.advanced += points

    def notice(self, text):
        self.texts.append(text)


def data(samples=24):
    return classification_data(samples)


def weights(path):
    return load_file(path)


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def small(seed=0):
    return build_model(f"{MLP}&seed={seed}")


def test_full_batch_descent_is_that_of_a_plain_loop(tmp_path):
    recorded = train(small(), data(), out=tmp_path, steps=5, every=1, lr=0.2, full_batch=True)
    model, (x, y) = small().train(), data().tensors
    for step in range(1, 6):
        loss = cross_entropy(model(x), y)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.sub_(0.2 * gradient)
        # Float32, and the loss is summed in float64 there: a few rounding units.
        assert recorded.losses[step - 1] == pytest.approx(loss.item(), rel=1e-6)
    for name, tensor in weights(recorded.checkpoints[-1]).items():
        assert torch.allclose(tensor.double(), model.state_dict()[name].double(), atol=1e-6)


def test_a_summed_loss_is_not_divided(tmp_path):
    x, y = torch.randn(50, 3), torch.randn(50, 1)
    model = nn.Linear(3, 1, bias=False)
    start = model.weight.detach().clone()
    with torch.no_grad():
        gradient = 2 * (x @ start.T - y).T @ x
        total = float((x @ start.T - y).square().sum())
    options = {"loss": "sse", "lr": 1e-3, "full_batch": True, "steps": 1}
    result = train(model, TensorDataset(x, y), out=tmp_path, **options)
    assert result.losses[0] == pytest.approx(total, rel=1e-6)
    assert torch.allclose(model.weight, start - 1e-3 * gradient, rtol=1e-5)


def test_the_deep_linear_network_trains_by_specs(tmp_path):
    result = train(
        "sample:deep-linear",
        "sample:gaussian?samples=200",
        out=tmp_path,
        steps=100,
        loss="sse",
        lr=1e-6,
        full_batch=True,
    )
    assert result.losses[-1] < 0.9 * result.losses[0]
    with safe_open(result.checkpoints[-1], "pt") as file:
        told = file.metadata()
    assert told["model"] == "sample:deep-linear"
    assert told["data"] == "sample:gaussian?samples=200"
    assert told["loss_spec"] == "sse"
    assert told["learning_rate"] == "1e-06"


def test_real_digits_are_learned(tmp_path):
    pytest.importorskip("landscape_sklearn")
    result = train(
        "sample:mlp?in_features=64&hidden=32&norm=batch",
        "sklearn:digits?flatten=True",
        test_data="sklearn:digits?flatten=True&split=test",
        out=tmp_path,
        steps=150,
        batch_size=64,
    )
    assert result.score.accuracy > 0.9
    assert result.losses[-20:].mean() < 0.3 * result.losses[:5].mean()


def test_one_seed_gives_the_same_weights_and_another_one_others(tmp_path):
    def last(name, seed):
        result = train(MLP, data(), out=tmp_path / name, steps=7, batch_size=8, seed=seed)
        return weights(result.checkpoints[-1])

    first = last("first", 3)
    torch.rand(5)  # the caller's random state must not matter
    assert equal(first, last("again", 3))
    assert not equal(first, last("other", 4))


def test_dropout_follows_the_seed_and_the_random_state_of_the_caller_is_kept(tmp_path):
    def last(name):
        model = Dropping()
        before = randomness.capture()
        result = train(model, data(), out=tmp_path / name, steps=5, batch_size=8)
        assert randomness.capture() == before
        return weights(result.checkpoints[-1])

    first = last("first")
    torch.rand(3)
    assert equal(first, last("again"))


def test_the_first_weights_are_recorded_if_due_and_the_last_ones_always(tmp_path):
    model = small()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    result = train(model, data(), out=tmp_path, steps=7, every=3, batch_size=8)
    assert [path.stem for path in result.checkpoints] == [
        f"step-{step:06d}" for step in (0, 3, 6, 7)
    ]
    assert equal(weights(result.checkpoints[0]), before)
    assert equal(weights(result.checkpoints[-1]), model.state_dict())


def test_a_twentieth_of_the_steps_is_recorded_by_default(tmp_path):
    result = train(small(), data(), out=tmp_path, steps=60, batch_size=8)
    assert len(result.checkpoints) == 21


def test_epochs_are_passes_without_a_ragged_batch(tmp_path):
    result = train(small(), data(23), out=tmp_path, epochs=3, batch_size=8)
    assert result.steps == 6


def test_the_loss_that_is_not_finite_ends_the_training_and_is_recorded(tmp_path):
    told = Notices()
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)), nn.Linear(4, 1))
    x = torch.randn(32, 4)
    options = {"loss": "mse", "lr": 1e3, "every": 1000, "steps": 400, "batch_size": 16}
    result = train(model, TensorDataset(x, x.sum(1)), out=tmp_path, progress=told, **options)
    assert result.diverged_at == result.steps + 1 < 400
    assert not np.isfinite(result.losses[-1])
    assert np.isfinite(result.losses[:-1]).all()
    assert len(result.losses) == result.diverged_at
    assert [path.stem for path in result.checkpoints] == [
        "step-000000",
        f"step-{result.steps:06d}",
    ]
    assert f"at step {result.diverged_at}" in told.texts[0]
    assert json.loads((tmp_path / SUMMARY).read_text())["diverged_at"] == result.diverged_at


def test_held_out_data_are_evaluated_where_weights_are_recorded(tmp_path):
    model, held_out = small(), data(10)
    result = train(model, data(), test_data=held_out, out=tmp_path, steps=4, every=2, batch_size=8)
    x, y = held_out.tensors
    for row, path in zip((0, 2, 4), result.checkpoints, strict=True):
        copy = small(seed=5)
        copy.load_state_dict(weights(path))
        scores = copy.eval()(x).detach()
        accuracy = float((scores.argmax(1) == y).double().mean())
        assert result.history["test_loss"][row] == pytest.approx(
            float(cross_entropy(scores, y)), rel=1e-5
        )
        assert result.history["test_accuracy"][row] == pytest.approx(accuracy)
    assert np.isnan(result.history["test_loss"][[1, 3]]).all()
    assert result.score.accuracy == result.history["test_accuracy"][4]


def test_evaluating_does_not_change_the_training(tmp_path):
    plain = train(small(), data(), out=tmp_path / "a", steps=6, every=1, batch_size=8)
    checked = train(
        small(), data(), test_data=data(9), out=tmp_path / "b", steps=6, every=1, batch_size=8
    )
    assert equal(weights(plain.checkpoints[-1]), weights(checked.checkpoints[-1]))


def test_step_sizes_warm_up_and_decay_and_are_recorded(tmp_path):
    options = {"lr": 1.0, "warmup_steps": 2, "decay_at": (3, 4), "decay_factor": 0.5}
    result = train(small(), data(), out=tmp_path, steps=6, batch_size=8, **options)
    assert result.history["learning_rate"][1:].tolist() == [0.1, 0.55, 1.0, 0.5, 0.25, 0.25]


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sgd", lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01)),
        (
            "sgd?nesterov=True",
            lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
        ),
        ("adam?eps=1e-3", lambda p: torch.optim.Adam(p, lr=0.05, eps=1e-3, weight_decay=0.01)),
        ("adamw", lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.01)),
    ],
)
def test_an_optimizer_by_name_is_the_one_that_is_made_by_hand(tmp_path, name, make):
    momentum = {"momentum": 0.9} if "sgd" in name else {}
    common = {"steps": 4, "full_batch": True, "loss": "cross-entropy"}
    named = train(
        small(),
        data(),
        out=tmp_path / "a",
        optimizer=name,
        lr=0.05,
        weight_decay=0.01,
        **momentum,
        **common,
    )
    given = train(
        small(), data(), out=tmp_path / "b", optimizer=lambda m: make(m.parameters()), **common
    )
    assert equal(weights(named.checkpoints[-1]), weights(given.checkpoints[-1]))
    assert given.history["learning_rate"].tolist() == [0.05] * 5


def test_a_live_model_keeps_its_mode_and_frozen_weights(tmp_path):
    model = small().eval()
    frozen = next(model.parameters()).requires_grad_(False)
    before = frozen.clone()
    train(model, data(), out=tmp_path, steps=3, batch_size=8)
    assert not model.training
    assert torch.equal(frozen, before)


def test_progress_hears_every_step(tmp_path):
    told = Notices()
    train(small(), data(), out=tmp_path, steps=5, batch_size=8, progress=told)
    assert (told.points, told.advanced) == (5, 5)


def test_the_summary_says_what_was_asked_for(tmp_path):
    train(MLP, data(), out=tmp_path, steps=2, batch_size=8, seed=5)
    summary = json.loads((tmp_path / SUMMARY).read_text())
    assert summary["settings"]["model"] == MLP
    assert summary["settings"]["data"] == "(live TensorDataset)"
    assert summary["settings"]["seed"] == 5
    assert summary["steps"] == 2
    # What is installed; the package itself may name the build behind a plus sign, too.
    assert summary["versions"]["torch"] == metadata.version("torch")
    assert torch.__version__.startswith(summary["versions"]["torch"])


def test_a_live_object_is_no_spec_in_the_checkpoint(tmp_path):
    result = train(small(), data(), out=tmp_path, steps=1, batch_size=8)
    with safe_open(result.checkpoints[0], "pt") as file:
        assert {"model", "data"}.isdisjoint(file.metadata())


def test_a_recording_is_replaced_only_when_asked_to(tmp_path):
    options = {"out": tmp_path, "steps": 2, "batch_size": 8}
    train(small(), data(), **options)
    with pytest.raises(SpecError, match="holds a recording"):
        train(small(), data(), **options)
    train(small(), data(), **options, overwrite=True)


@pytest.mark.parametrize(
    ("settings", "error", "what"),
    [
        ({"steps": 1, "epochs": 1}, SpecError, "steps or epochs"),
        ({"steps": 0}, SpecError, "steps is not a whole number"),
        ({"batch_size": 2.5}, SpecError, "batch_size is not a whole number"),
        ({"lr": 0.0}, SpecError, "lr is not a positive number"),
        ({"momentum": -1}, SpecError, "momentum is not a non-negative number"),
        ({"loss": "hinge"}, SpecError, "no loss is named 'hinge'"),
        ({"dtype": "float16"}, SpecError, "dtype has no such value"),
        ({"learning_rate": 1}, SpecError, "no setting 'learning_rate'"),
        ({"optimizer": "lion"}, SpecError, "no optimizer is named 'lion'"),
        ({"optimizer": "sgd?beta=1"}, SpecError, "refuses its options"),
        ({"optimizer": "adam", "momentum": 0.9}, SpecError, "no momentum of its own"),
        ({"schedule": "often"}, SpecError, "no such schedule"),
        ({"device": "cuda:99"}, SpecError, "no such GPU"),
        ({"device": "cpu,cpu"}, SpecError, "one device is needed"),
        ({"loss": "mse"}, MeasurementError, "do not fit together"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(tmp_path, settings, error, what):
    with pytest.raises(error, match=what) as caught:
        train(small(), data(), out=tmp_path, **settings)
    assert caught.value.seen
    assert caught.value.hint


def test_data_that_do_not_fit_the_model_are_an_error_of_three_lines(tmp_path):
    with pytest.raises(MeasurementError, match="forward pass") as caught:
        train(nn.Linear(9, 3), data(), out=tmp_path, steps=1)
    assert "RuntimeError" in caught.value.seen


def test_a_model_that_does_not_train_is_refused(tmp_path):
    with pytest.raises(MeasurementError, match="no trainable parameter"):
        train(small().requires_grad_(False), data(), out=tmp_path)


def test_data_that_end_too_early_are_an_error(tmp_path):
    batches = (batch for batch in [data().tensors] * 2)
    with pytest.raises(AdapterError, match="no more batches"):
        train(small(), batches, out=tmp_path, steps=5)


def test_the_examples_run():
    for module in (run, spec):
        failures, tried = doctest.testmod(module)
        assert failures == 0
        assert tried > 0
