"""The benchmark times what it says it times."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("bench", reason="the benchmark lies beside the package, not in it")

from bench import by_hand, limits, report
from bench.cases import CASES, Case
from bench.engine import runner
from bench.timing import Contender, Timing, interleave

SMALL = {
    "linear": replace(CASES["linear"], points=4, batch=50),
    "gpt": replace(CASES["gpt"], points=2, batch=2),
    "resnet": replace(CASES["resnet"], points=2, batch=4, options={"depth": 8, "norm": "batch"}),
}


@pytest.mark.parametrize("case", SMALL.values(), ids=SMALL)
def test_the_engine_and_the_loop_by_hand_measure_the_same(case: Case) -> None:
    model, batch = by_hand.without_tracking(case.model()), case.data()
    direction = by_hand.gradient(model, batch, case.criterion())
    rows = by_hand.gradient_line(model, batch, case.criterion(), direction, case.steps())
    losses = by_hand.loss_line(model, batch, case.criterion(), direction, case.steps())
    with runner(case) as run:
        columns = run()
    np.testing.assert_allclose(columns[:, 0], [row[0] for row in rows], rtol=1e-4)
    np.testing.assert_allclose(columns[:, 0], losses, rtol=1e-4)
    np.testing.assert_allclose(np.sqrt(columns[:, 1]), [row[1] for row in rows], rtol=1e-2)
    np.testing.assert_allclose(np.sqrt(columns[:, 2]), [row[2] for row in rows], rtol=5e-2)


def test_contenders_take_turns() -> None:
    order: list[str] = []
    contenders = {n: Contender(lambda n=n: order.append(n), 1) for n in ("first", "second")}
    timings = interleave(contenders, 2)
    assert order == ["first", "second"] * 3, "one round does not count"
    assert all(len(timing.rounds) == 2 for timing in timings.values())


def test_seconds_are_a_point_and_a_contender_may_time_itself() -> None:
    timings = interleave(
        {"sleeping": Contender(lambda: time.sleep(0.02), 2), "telling": Contender(lambda: 6.0, 3)},
        1,
    )
    assert 0.01 <= timings["sleeping"].median < 1
    assert timings["telling"].rounds == (2.0,)


def test_ratios_are_medians_over_rounds() -> None:
    assert Timing((1.0, 2.0, 4.0)).ratio_of(Timing((3.0, 4.0, 4.0))) == 2.0


def test_flops_are_those_of_forward_and_backward() -> None:
    products = 25 * 3 - 1  # the first layer needs no derivative by its input
    assert limits.flops_per_point(SMALL["linear"]) == products * 2 * 50 * 10 * 10


def test_tables_have_a_row_per_case() -> None:
    timing = Timing((0.001, 0.002, 0.003))
    found = report.CaseReport("linear", "net", 4, gradient_line={}, loss_line={})
    found.gradient_line = {"by hand": timing, "landscape": Timing((0.0005, 0.001, 0.0015))}
    found.loss_line = found.gradient_line
    found.machine_share = (0.5, 1.0)
    rows = report.gradient_table([found])
    assert len(rows) == 3
    assert "| 2 (1–3) | 1 (0.5–1.5) | 2 | 50% → 100% |" in rows[-1]
    assert "| – | – |" in report.loss_table([found])[-1]


def test_a_report_can_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from bench.__main__ import main

    main(["linear", "--rounds", "1", "--points", "4", "--markdown", str(tmp_path / "page.md"),
          "--json", str(tmp_path / "page.json")])  # fmt: skip
    assert "deep linear net" in (tmp_path / "page.md").read_text()
    assert '"gradient_line"' in (tmp_path / "page.json").read_text()
    assert "python -m bench" in capsys.readouterr().out


def test_the_time_of_a_point_is_broken_down_by_kind_of_operation() -> None:
    from bench import breakdown

    found = breakdown.break_down(SMALL["resnet"], gradients=True)
    for spent in (found.hand, found.engine):
        assert spent["products and convolutions"] > 0
        assert spent["normalisation"] > 0
        assert all(value >= 0 for value in spent.values())
    header, _, row = breakdown.table([found])
    assert header.count("|") == row.count("|")
    assert row.startswith(f"| {SMALL['resnet'].title}, gradients |")


def test_cases_can_be_had_larger() -> None:
    from bench.cases import WIDER

    assert set(WIDER) == set(CASES)
    for case in CASES.values():
        if case.name != "vgg":  # takes a while to build
            assert case.scaled(wider=True).parameters > 2 * case.parameters
    larger = CASES["gpt"].scaled(points=4, batch=2)
    assert (larger.points, larger.batch) == (256, 32)
