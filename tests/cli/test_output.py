"""Numbers, tables and JSON as they are written."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from landscape_cli.cli import output
from landscape_cli.cli.summary import SHOWN, shorten, write_summary
from landscape_cli.cli.usage import one_line


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0123456, "0.01235"),
        (math.nan, "–"),
        (math.inf, "inf"),
        (12345678.0, "1.235e+07"),
        (0, "0"),
    ],
)
def test_numbers_have_four_digits(value: float, text: str) -> None:
    assert output.number(value) == text


def test_strict_json_has_no_nan_and_no_numpy() -> None:
    values = {"a": np.array([1.0, np.nan]), "b": (np.float64(np.inf), np.int64(3)), 5: b"x"}
    assert json.loads(json.dumps(output.strict(values), allow_nan=False)) == {
        "a": [1.0, None],
        "b": [None, 3],
        "5": "x",
    }


def test_markup_and_control_characters_in_labels_are_text(capsys) -> None:
    output.write_table(("name", "value"), [("[red]x[/red]\x1b[31m", "1")])
    output.write("[bold]\x07[/bold]")
    shown = capsys.readouterr().out
    assert "[red]x[/red]\\x1b[31m" in shown
    assert "[bold]\\x07[/bold]" in shown
    assert "\x1b" not in shown


def test_an_error_line_is_one_line_of_bearable_length() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert len(one_line("x" * 10_000)) <= 400


def line(**marks: object) -> dict:
    numbers = dict.fromkeys(
        ("loss_minimum", "loss_maximum", "gradient_change_maximum", "beta", "limit"), 1.0
    )
    doubts = ("saturated", "at_smallest_step", "below_noise_floor", "not_finite", "not_measured")
    return {
        **numbers,
        "beta_times_lr": 0.1,
        "direction": "gradient",
        **dict.fromkeys(doubts, 0),
        **marks,
    }


def summary(count: int, **marks: object) -> dict:
    checkpoint = {"base_loss": 1.0, "noise_floor": 1e-6}
    return {
        "checkpoints": [
            {**checkpoint, "checkpoint": f"step-{index}", "directions": [line(**marks)]}
            for index in range(count)
        ]
    }


@pytest.mark.parametrize(
    ("mark", "sign", "meaning"),
    [
        ("saturated", "†", "about 1/a of the step grid"),
        ("at_smallest_step", "*", "smaller steps may give more"),
        ("below_noise_floor", "~", "within the noise floor"),
        ("not_finite", "!", "some points are not finite"),
        ("not_measured", "…", "some points are not measured"),
    ],
)
def test_what_is_doubtful_is_marked_and_the_mark_explained(capsys, mark, sign, meaning) -> None:
    write_summary(summary(1, **{mark: 1}))
    shown = capsys.readouterr().out
    assert f"1{sign} " in shown
    assert f"{sign} {meaning[:3]}" in shown or meaning in shown
    write_summary(summary(1))
    assert meaning not in capsys.readouterr().out


def test_the_middle_of_a_long_trajectory_is_left_out_and_counted(capsys) -> None:
    write_summary(summary(100))
    shown = capsys.readouterr().out
    assert f"… {100 - SHOWN} more" in shown
    assert "step-0 " in shown
    assert "step-99" in shown
    assert "step-50" not in shown
    write_summary(summary(100), every_line=True)
    assert "step-50" in capsys.readouterr().out


def test_a_short_trajectory_is_shown_whole() -> None:
    assert shorten(range(SHOWN)) == list(range(SHOWN))
