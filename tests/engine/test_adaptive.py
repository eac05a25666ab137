"""Steps that are refined where a line changes fastest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import landscape_cli as landscape
from landscape_cli.assembly import assemble
from landscape_cli.engine import adaptive
from landscape_cli.engine.adaptive import refine
from landscape_cli.errors import SpecError
from landscape_cli.measures.contract import Field
from landscape_cli.plan import Plan, PlannedCheckpoint
from landscape_cli.specs import AUTO_GRID, StepGrid, parse_tolerance
from landscape_cli.units import UnitKey, UnitResult

GRID = StepGrid.parse(AUTO_GRID).multiples()
Curve = Callable[[np.ndarray], np.ndarray]


class Counting:
    """Columns of a line whose loss and gradient change are given functions of the step."""

    def __init__(self, loss: Curve, change: Curve) -> None:
        self.loss, self.change = loss, change
        self.count = 0

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        self.count += len(x)
        rows = [self.loss(x), np.ones_like(x), self.change(x) ** 2, np.ones_like(x), x**2]
        return np.stack(rows, axis=1), {"measure/step": x.copy()}


def bump(x: np.ndarray) -> np.ndarray:
    """A gradient change whose ratio to the step peaks at 1.37, between the points of the grid."""
    return x * (1 + 2 * np.exp(-(((x - 1.37) / 0.3) ** 2)))


def dip(x: np.ndarray) -> np.ndarray:
    return 3 - 2 * np.exp(-(((x - 2.13) / 0.4) ** 2))


@pytest.mark.parametrize("tolerance", [0.03, 0.003])
def test_the_extremes_are_known_to_the_tolerance(tolerance: float) -> None:
    evaluate = Counting(dip, bump)
    line = refine(evaluate, GRID, tolerance, 1.0)
    dense = np.linspace(0.5, 4, 20_001)
    assert line.settled
    smoothness = np.sqrt(line.columns[:, 2]) / line.multiples
    assert smoothness.max() == pytest.approx((bump(dense) / dense).max(), rel=tolerance)
    scale = np.ptp(dip(dense))
    assert line.columns[:, 0].min() == pytest.approx(dip(dense).min(), abs=tolerance * scale)
    assert line.columns[:, 0].max() == pytest.approx(dip(dense).max(), abs=tolerance * scale)
    assert evaluate.count == len(line.multiples) < 60
    assert line.added.sum() == len(line.multiples) - len(GRID)


def test_fewer_points_reach_a_looser_tolerance() -> None:
    counts = [len(refine(Counting(dip, bump), GRID, t, 1.0).multiples) for t in (0.1, 0.01, 0.001)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_a_straight_line_needs_no_further_point() -> None:
    line = refine(Counting(lambda x: 1 - x, lambda x: 2 * x), GRID, 0.01, 1.0)
    assert line.settled
    assert np.array_equal(line.multiples, GRID)
    assert not line.added.any()


def test_where_the_loss_stops_being_finite_is_found() -> None:
    edge = 1.9
    line = refine(
        Counting(lambda x: np.where(x < edge, x, np.nan), lambda x: 2 * x), GRID, 0.01, 1.0
    )
    finite = np.isfinite(line.columns[:, 0])
    last, first = line.multiples[finite].max(), line.multiples[~finite].min()
    assert last < edge <= first
    assert first - last <= 0.01 * first


def test_points_are_ascending_and_their_rows_follow() -> None:
    line = refine(Counting(dip, bump), GRID, 0.01, 1.0)
    assert (np.diff(line.multiples) > 0).all()
    np.testing.assert_array_equal(line.rows["measure/step"], line.multiples)


def test_refinement_ends_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptive, "MOST_POINTS", 20)
    line = refine(Counting(lambda x: np.sin(40 * x), bump), GRID, 1e-5, 1.0)
    assert not line.settled
    assert len(line.multiples) <= 20 + adaptive.LARGEST_ADDITION


@pytest.mark.parametrize("text", ["auto:0", "auto:2", "auto:x", "auto:nan"])
def test_a_tolerance_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(SpecError, match="tolerance of the steps"):
        parse_tolerance(text)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3)).double()


def settings() -> dict[str, object]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (40,), generator=generator)
    return {
        "data": [(3 * x, y)],
        "lr": 4.0,
        "dtype": "float64",
        "directions": ("gradient", "random:2"),
    }


def test_a_probe_with_automatic_steps_has_one_axis_for_all_lines() -> None:
    run = landscape.probe(model=net(), steps="auto:0.005", **settings())
    requested, status = run["step_requested"], run["status"]
    assert requested.dtype == np.uint8
    assert run.variables["step_requested"].dims == ("checkpoint", "direction", "step")
    assert len(run["step"]) == len(run["step_multiple"]) == status.shape[2]
    assert ((requested > 0) == (status > 0)).all()
    for multiple in GRID:
        assert (requested[:, :, run["step_multiple"] == multiple] == 1).all()
    assert (requested == 2).any()
    assert (status == 0).any(), "the lines are refined in different places"
    assert np.isnan(run["loss"][status == 0]).all()
    assert run.complete


def test_automatic_steps_find_what_a_dense_grid_finds() -> None:
    found = landscape.probe(model=net(), steps="auto:0.005", **settings())
    dense = landscape.probe(model=net(), steps="0.5:4:400", **settings())
    assert len(found["step"]) < 150
    for name in (
        "effective_smoothness/beta",
        "loss_range/minimum",
        "gradient_predictiveness/maximum",
    ):
        np.testing.assert_allclose(found[name], dense[name], rtol=0.01)


def test_a_measure_on_the_steps_of_the_grid_is_spread_over_all_steps() -> None:
    columns = np.array([[1.0, 1, 1, 1, 1]] * 3)
    kept = {
        "columns": columns,
        "multiples": np.array([1.0, 1.5, 2.0]),
        "added": np.array([0, 1, 0]),
    }
    plan = Plan(
        settings={"steps": "auto"},
        checkpoints=(PlannedCheckpoint("here", "", 0, 0.1, ""),),
        directions=("gradient",),
        unscaled=(),
        step_multiples=(1.0, 2.0),
        measures={"paths": {"loss": Field(("checkpoint", "step", "iteration"))}},
    )
    units = [
        UnitResult(UnitKey(0, "line", "gradient", 0, 2), kept),
        UnitResult(UnitKey(0, "measure", "paths"), {"loss": np.arange(6.0).reshape(2, 3)}),
    ]
    run = assemble(plan.to_header(), units)
    assert run["step_multiple"].tolist() == [1, 1.5, 2]
    assert run["step_requested"][0, 0].tolist() == [1, 2, 1]
    np.testing.assert_array_equal(
        run["paths/loss"][0], [[0, 1, 2], [np.nan, np.nan, np.nan], [3, 4, 5]]
    )
