from __future__ import annotations

import json

import numpy as np
import pytest

from landscape_cli.assembly import assemble
from landscape_cli.measures.contract import Field
from landscape_cli.plan import Plan, PlannedCheckpoint
from landscape_cli.units import UnitKey, UnitResult

MULTIPLES = (0.5, 1.0, 2.0)


def plan(**changes) -> Plan:
    values = {
        "settings": {"seed": 0},
        "checkpoints": (
            PlannedCheckpoint("a", "a.pt", 0, 0.1, "00"),
            PlannedCheckpoint("b", "b.pt", 10, 0.2, "11"),
        ),
        "directions": ("gradient", "random:0"),
        "unscaled": (),
        "step_multiples": MULTIPLES,
    }
    return Plan(**{**values, **changes})


def base(checkpoint: int) -> UnitResult:
    arrays = {"base_loss": 1.0, "gradient_norm": 2.0, "noise_floor": 1e-7}
    return UnitResult(
        UnitKey(checkpoint, "base"), {name: np.float64(value) for name, value in arrays.items()}
    )


def line(checkpoint: int, name: str, start: int = 0, stop: int = 3, **arrays) -> UnitResult:
    sizes = np.array(MULTIPLES)[start:stop]
    columns = np.stack([1 - sizes, sizes, sizes**2, sizes, sizes**2 / 4], axis=1)
    return UnitResult(
        UnitKey(checkpoint, "line", name, start, stop),
        {"columns": columns, "limit": np.float64(2.0), **arrays},
    )


def all_lines() -> list[UnitResult]:
    return [line(c, d) for c in (0, 1) for d in ("gradient", "random:0")]


def test_a_run_with_every_unit_is_complete() -> None:
    run = assemble(plan().to_header(), [base(0), base(1), *all_lines()])
    assert run.complete
    assert run["loss"].shape == (2, 2, 3)
    assert (run["status"] == 1).all()
    np.testing.assert_allclose(run["step_size"], [[0.05, 0.1, 0.2], [0.1, 0.2, 0.4]])
    np.testing.assert_allclose(run["effective_smoothness/beta"], 2)
    np.testing.assert_allclose(run["effective_smoothness/beta_times_lr"], [[0.2] * 2, [0.4] * 2])
    np.testing.assert_allclose(run["effective_smoothness/one_over_beta"], 0.5)


def test_what_is_missing_has_status_0_and_the_run_is_partial() -> None:
    run = assemble(plan().to_header(), [base(0), line(0, "gradient", 0, 2)])
    assert run.attributes["status"] == "partial"
    assert run["status"][0, 0].tolist() == [1, 1, 0]
    assert (run["status"][1] == 0).all()
    assert np.isnan(run["loss"][1]).all()
    assert np.isnan(run["base_loss"][1])


def test_chunks_of_a_line_make_the_same_run_as_the_whole_line() -> None:
    whole = assemble(plan().to_header(), [base(0), base(1), *all_lines()])
    parts = [unit for unit in all_lines() if unit.key.name != "gradient"]
    for checkpoint in (0, 1):
        parts += [line(checkpoint, "gradient", 0, 2), line(checkpoint, "gradient", 2, 3)]
    other = assemble(plan().to_header(), [*parts, base(1), base(0)])
    assert other.complete
    for path in whole:
        np.testing.assert_array_equal(whole[path], other[path])


def test_an_error_makes_the_run_partial_and_is_kept_with_its_checkpoint() -> None:
    failed = UnitResult(UnitKey(1, "failure"), error="damaged: b.pt")
    run = assemble(plan().to_header(), [base(0), *all_lines()[:2], failed])
    assert not run.complete
    (notice,) = json.loads(run.attributes["notices"])
    assert notice == {"text": "damaged: b.pt", "checkpoints": ["b"]}


def test_unscaled_directions_step_by_the_multiples_themselves() -> None:
    made = plan(directions=("gradient", "update"), unscaled=("update",))
    assert made.step_sizes(0, "update").tolist() == list(MULTIPLES)
    assert made.step_sizes(1, "gradient").tolist() == [0.1, 0.2, 0.4]


FIELDS = {
    "layer": Field(("layer",), dtype="str"),
    "l2": Field(("checkpoint", "layer"), "loss", "a number per layer"),
    "steep": Field(("checkpoint", "direction", "layer")),
}


def test_measures_are_stacked_over_checkpoints_and_directions() -> None:
    header = plan(measures={"shift": FIELDS}, provenance={"site_measures": ["shift"]}).to_header()
    arrays = {"layer": np.array(["x", "y"]), "l2": np.array([1.0, 2.0])}
    steep = {"shift/steep": np.array([5.0, 6.0])}
    units = [
        base(0),
        base(1),
        *all_lines(),
        line(1, "random:0", **steep),
        UnitResult(UnitKey(1, "measure", "shift"), arrays),
        UnitResult(UnitKey(0, "measure", "shift"), notices=("shift: does not apply",)),
    ]
    run = assemble(header, units)
    assert run.complete, "a measure that does not apply is not missing"
    assert run.labels("shift/layer") == ["x", "y"]
    assert run.variables["shift/l2"].dims == ("checkpoint", "layer")
    np.testing.assert_array_equal(run["shift/l2"], [[np.nan] * 2, [1, 2]])
    np.testing.assert_array_equal(run["shift/steep"][1, 1], [5, 6])
    assert np.isnan(run["shift/steep"][0]).all()


def test_a_plan_goes_through_json_and_back() -> None:
    made = plan(measures={"shift": FIELDS}, provenance={"seed": 0})
    assert Plan.from_header(json.loads(json.dumps(made.to_header()))) == made


@pytest.mark.parametrize("rate", [None])
def test_a_run_without_learning_rates_has_nan_in_their_place(rate) -> None:
    made = plan(
        checkpoints=(PlannedCheckpoint("a", "a.pt", -1, rate, ""),),
        directions=("toward:x",),
        unscaled=("toward:x",),
    )
    run = assemble(made.to_header(), [base(0), line(0, "toward:x")])
    assert np.isnan(run["learning_rate"][0])
    np.testing.assert_allclose(run["step_size"][0], MULTIPLES)
