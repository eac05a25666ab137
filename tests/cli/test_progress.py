"""Progress: rate and time left, in a terminal, in a log, and not at all."""

from __future__ import annotations

import io
import sys

import pytest

from landscape_cli.cli import progress
from landscape_cli.cli.progress import Bar, Lines, Pace, Quiet, duration_text, rate_text, watch


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_time_left_follows_from_the_rate() -> None:
    clock = Clock()
    pace = Pace(100, "points", clock)
    clock.now += 10
    pace.advance(20)
    assert pace.rate == 2
    assert pace.text() == "2 points/s, 0:40 left"


def test_points_of_a_resumed_run_do_not_count_as_fast() -> None:
    clock = Clock()
    pace = Pace(100, "points", clock)
    pace.advance(80)
    clock.now += 10
    pace.advance(10)
    assert pace.text() == "1 points/s, 0:10 left"


def test_a_rate_that_is_not_known_is_not_told() -> None:
    assert Pace(100, "points", Clock()).text() == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (61, "1:01"), (3661, "1:01:01")]
)
def test_durations_are_written_as_a_clock_does(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_slow_rates_are_seconds_per_point() -> None:
    assert rate_text(12.345, "points") == "12.3 points/s"
    assert rate_text(0.5, "points") == "2 s/point"


def test_a_log_gets_a_line_now_and_then_and_at_the_end(capsys) -> None:
    clock = Clock()
    with Lines("points", clock) as lines:
        lines.start(4)
        for seconds in (1, 1, 9, 1):
            clock.now += seconds
            lines.advance(1, "step-10 gradient")
        lines.notice("something\x1b[31m odd")
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "4 points to do"
    assert told[1].startswith("3/4 points, 0.273".replace("0.273", "3.67 s/point"))
    assert told[1].endswith("step-10 gradient")
    assert told[2].startswith("4/4 points")
    assert told[3:] == ["note: something\\x1b[31m odd"]


def test_quiet_progress_says_nothing(capsys) -> None:
    with watch(quiet=True) as quiet:
        quiet.start(3)
        quiet.advance(3, "x")
        quiet.notice("x")
    assert isinstance(quiet, Quiet)
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_with_rate_and_notices_above_it(monkeypatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(progress, "SETTLING_SECONDS", -1.0)
    monkeypatch.setenv("TERM", "xterm")
    with watch(quiet=False) as bar:
        assert isinstance(bar, Bar)
        bar.start(4)
        bar.advance(3, "step-[10] gradient")
        bar.notice("[bold]not markup[/bold]")
        bar._bar.refresh()
    text = terminal.getvalue()
    assert "3/4" in text
    assert "points/s" in text
    assert "left" in text
    assert "step-[10] gradient" in text
    assert "note: [bold]not markup[/bold]" in text
