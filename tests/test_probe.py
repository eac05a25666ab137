"""The probe against references that share no code with it."""

from __future__ import annotations

import math

import cases
import numpy as np
import oracles
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import landscape_cli as landscape
from landscape_cli import batches, randomness
from landscape_cli.errors import LandscapeError, SpecError

MODES = ("batch", "running", "frozen")
STEPS = "0.5:4:6"


def awkward_run(mode: str, dtype: str) -> tuple[landscape.Run, dict[str, list[float]]]:
    model, data = cases.Awkward().to(getattr(torch, dtype)), cases.awkward_data()
    run = landscape.probe(
        model=model,
        data=data,
        lr=0.3,
        steps=STEPS,
        batch_size=8,
        batches=3,
        norm_mode=mode,
        dtype=dtype,
    )
    drawn = batches.draw(data, 8, 3, seed=0).batches
    start = {name: value.detach().double() for name, value in model.state_dict().items()}
    start["unused"] = model.unused.detach().double()
    trainable = [name for name, p in model.named_parameters() if p.requires_grad]
    objective = oracles.awkward_objective(start, drawn, mode)
    multiples = np.geomspace(0.5, 4, 6)
    return run, oracles.plain_line(objective, start, trainable, 0.3 * multiples)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-8), ("float32", 2e-3)])
def test_probe_agrees_with_a_plain_float64_loop(mode: str, dtype: str, tolerance: float) -> None:
    run, expected = awkward_run(mode, dtype)
    assert run["base_loss"][0] == pytest.approx(expected.pop("base_loss")[0], rel=tolerance)
    for name, values in expected.items():
        np.testing.assert_allclose(run[name][0, 0], values, rtol=tolerance, err_msg=name)


def test_the_three_norm_modes_differ_on_a_net_with_batchnorm() -> None:
    losses = [awkward_run(mode, "float64")[0]["loss"][0, 0] for mode in MODES]
    assert not np.allclose(losses[0], losses[1], rtol=1e-6)
    assert not np.allclose(losses[0], losses[2], rtol=1e-6)


def test_smoothness_of_a_quadratic_is_its_curvature_along_the_gradient() -> None:
    model = cases.quadratic()
    run = landscape.probe(
        model=model, data=cases.one_batch(), loss="model", lr=0.1, steps="-1:1:5:lin"
    )
    gradient = model.matrix @ model.theta.detach()
    curvature = float((model.matrix @ gradient).norm() / gradient.norm())
    assert run["effective_smoothness/beta"][0, 0] == pytest.approx(curvature, rel=1e-12)
    assert run["effective_smoothness/limit"][0, 0] == pytest.approx(curvature, rel=1e-12)
    assert run["effective_smoothness/beta_times_lr"][0, 0] == pytest.approx(0.1 * curvature)
    assert run["effective_smoothness/saturated"][0, 0] == 0
    assert math.isnan(run["smoothness"][0, 0, 2]), "the smoothness at step 0 is undefined"


def test_smoothness_of_a_quadratic_is_bounded_by_its_top_eigenvalue() -> None:
    model = cases.quadratic(size=7)
    run = landscape.probe(
        model=model,
        data=cases.one_batch(),
        loss="model",
        lr=0.1,
        directions=("gradient", "random:5"),
    )
    top = float(torch.linalg.eigvalsh(model.matrix).abs().max())
    assert np.all(run["effective_smoothness/beta"] <= top * (1 + 1e-12))


def test_filter_normalised_directions_leave_one_dimensional_tensors_where_they_are() -> None:
    run = landscape.probe(
        model=cases.quadratic(),
        data=cases.one_batch(),
        loss="model",
        lr=0.1,
        directions="random-filter:1",
    )
    assert (run["distance"] == 0).all()
    assert np.isnan(run["smoothness"]).all()
    assert math.isnan(run["effective_smoothness/beta"][0, 0])


def test_loss_range_of_least_squares_is_that_of_the_parabola() -> None:
    model, data = cases.LeastSquares(), cases.regression_data()
    x, y = data.tensors
    run = landscape.probe(
        model=model, data=data, loss="mse", lr=0.1, batch_size=32, steps="0.5:8:9"
    )
    residual = (x @ model.w - y).detach()
    gradient = 2 * x.T @ residual / len(y)
    along = x @ gradient
    sizes = 0.1 * np.geomspace(0.5, 8, 9)
    parabola = [float(((residual - a * along) ** 2).mean()) for a in sizes]
    assert run["loss_range/minimum"][0, 0] == pytest.approx(min(parabola), rel=1e-12)
    assert run["loss_range/maximum"][0, 0] == pytest.approx(max(parabola), rel=1e-12)


def test_random_directions_are_scaled_to_the_gradient_and_repeat_with_the_seed() -> None:
    arguments = {
        "model": cases.Awkward().double(),
        "data": cases.awkward_data(),
        "lr": 0.1,
        "directions": ("random:2", "random-filter:1"),
        "steps": "1:2:2",
    }
    arguments["strategy"] = "plain"
    first = landscape.probe(**arguments, seed=5)
    second = landscape.probe(**arguments, seed=5)
    other = landscape.probe(**arguments, seed=6)
    assert first.labels("direction") == ["random:0", "random:1", "random-filter:0"]
    length = 0.1 * first["gradient_norm"][0]
    np.testing.assert_allclose(first["distance"][0, :, 0], length, rtol=1e-12)
    np.testing.assert_array_equal(first["loss"], second["loss"])
    assert not np.array_equal(first["loss"], other["loss"])


def test_the_model_is_bit_for_bit_what_it_was_after_a_probe_that_fails_in_the_middle() -> None:
    model = cases.Awkward().train()
    model.norm.eval()
    calls = {"count": 0}
    forward = model.leave.forward

    def failing(x: torch.Tensor) -> torch.Tensor:
        calls["count"] += 1
        if calls["count"] > 9:
            raise RuntimeError("in the middle")
        return forward(x)

    before = {name: value.clone() for name, value in model.state_dict().items()}
    identities = [id(tensor) for tensor in (*model.parameters(), *model.buffers())]
    state = randomness.capture()
    model.leave.forward = failing
    run = landscape.probe(model=model, data=cases.awkward_data(), lr=0.1, directions="random:3")
    assert not run.complete
    assert (run["status"] == 0).any()
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert identities == [id(tensor) for tensor in (*model.parameters(), *model.buffers())]
    assert model.training
    assert not model.norm.training
    assert model.norm.track_running_stats
    assert all(p.grad is None for p in model.parameters())
    assert randomness.capture() == state


def test_dropout_masks_are_the_same_at_every_point() -> None:
    model = cases.Dropping()
    data = cases.classification_data()
    run = landscape.probe(
        model=model, data=data, lr=1e-6, steps="0.5:1:4", dtype="float64", batch_size=24
    )
    assert np.ptp(run["loss"]) < 1e-4, "another mask would change the loss by much more"
    assert run["effective_smoothness/beta"][0, 0] == pytest.approx(
        run["effective_smoothness/limit"][0, 0], rel=1e-3
    )


def test_a_loss_that_overflows_is_recorded_as_it_is() -> None:
    model = cases.Quadratic(torch.eye(2) * 1e3, torch.ones(2))
    run = landscape.probe(
        model=model, data=[(torch.zeros(1, 1),)], loss="model", lr=1.0, steps="1:1e20:3"
    )
    assert run["status"][0, 0].tolist() == [1, 2, 2] or run["status"][0, 0].tolist() == [1, 1, 2]
    assert np.isinf(run["loss"][0, 0, -1])
    assert run["loss_range/not_finite"][0, 0] == (run["status"][0, 0] == 2).sum()
    assert np.isfinite(run["loss_range/maximum"][0, 0])


def test_a_nan_in_the_weights_is_reported_and_not_imputed() -> None:
    model = cases.Awkward()
    with torch.no_grad():
        model.enter.weight[0, 0] = math.nan
    run = landscape.probe(model=model, data=cases.awkward_data(), lr=0.1)
    assert math.isnan(run["base_loss"][0])
    assert (run["status"] == 2).all()
    assert math.isnan(run["effective_smoothness/beta"][0, 0])
    assert "loss at the checkpoint is nan" in run.attributes["notices"]


def test_unreached_parameters_are_reported() -> None:
    run = landscape.probe(model=cases.Awkward(), data=cases.awkward_data(), lr=0.1)
    assert "not reached by the loss: unused" in run.attributes["notices"]


def test_saturated_is_set_where_the_gradient_changes_by_its_norm_at_once() -> None:
    steep = cases.Quadratic(torch.eye(2, dtype=torch.float64), torch.ones(2).double())
    steep.forward = lambda x: torch.tanh(50 * steep.theta).abs().sum() + 0 * x.sum()
    with torch.no_grad():
        steep.theta.copy_(torch.tensor([0.02, 0.03]))
    run = landscape.probe(
        model=steep, data=cases.one_batch(), loss="model", lr=1.0, steps="0.5:4:8"
    )
    assert run["effective_smoothness/at_smallest_step"][0, 0] == 1
    assert run["effective_smoothness/saturated"][0, 0] == 1
    assert run["effective_smoothness/step_multiple_at_beta"][0, 0] == 0.5


def test_the_noise_floor_is_rounding() -> None:
    for dtype, ceiling in (("float64", 1e-13), ("float32", 1e-4)):
        run = landscape.probe(model=cases.Awkward(), data=cases.awkward_data(), lr=0.1, dtype=dtype)
        assert 0 < run["noise_floor"][0] < ceiling * max(1.0, run["gradient_norm"][0])
        assert not run["below_noise_floor"].any()


def test_the_noise_floor_marks_steps_that_rounding_swallows() -> None:
    run = landscape.probe(
        model=cases.Awkward(), data=cases.awkward_data(), lr=1e-9, dtype="float32", steps="1:2:2"
    )
    assert run["below_noise_floor"].all()


def test_batches_are_weighted_by_their_samples() -> None:
    model, data = cases.Awkward().double(), cases.awkward_data()
    whole = landscape.probe(
        model=model, data=data, lr=0.1, batch_size=23, norm_mode="running", steps="1:2:2"
    )
    parts = landscape.probe(
        model=model, data=data, lr=0.1, batch_size=8, batches=3, norm_mode="running", steps="1:2:2"
    )
    np.testing.assert_allclose(whole["loss"], parts["loss"], rtol=1e-12)
    np.testing.assert_allclose(whole["gradient_change"], parts["gradient_change"], rtol=1e-10)


def test_data_of_every_shape_gives_the_same_numbers() -> None:
    model, data = cases.Awkward().double(), cases.awkward_data()
    x, y = data.tensors

    class Pair:
        def __init__(self) -> None:
            self.x, self.y = x, y

    forms = [
        [(x, y)],
        [{"x": x, "label": y}],
        [Pair()],
        DataLoader(data, batch_size=23),
    ]
    losses = [
        landscape.probe(model=model, data=form, lr=0.1, norm_mode="running")["loss"]
        for form in forms
    ]
    for other in losses[1:]:
        np.testing.assert_allclose(other, losses[0], rtol=1e-12)


def test_a_learning_rate_is_needed_unless_directions_have_their_own_scale() -> None:
    with pytest.raises(LandscapeError, match="learning rate"):
        landscape.probe(model=cases.Awkward(), data=cases.awkward_data())


def test_settings_that_cannot_be_meant_are_refused() -> None:
    model, data = nn.Linear(4, 3), cases.classification_data()
    with pytest.raises(SpecError, match="no setting is named 'learningrate'"):
        landscape.probe(model=model, data=data, learningrate=0.1)
    with pytest.raises(SpecError, match="first step multiple"):
        landscape.probe(model=model, data=data, lr=0.1, steps="4:1:3")
