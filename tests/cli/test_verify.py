"""``landscape verify``: 0 where the numbers agree, 1 with three lines where they do not."""

from __future__ import annotations

import json

import h5py
import pytest


@pytest.fixture
def output(landscape, place):
    answer = landscape(*place.probe_args("-o", place / "run.h5"))
    assert answer.code == 0, answer.err
    return place / "run.h5"


def test_verify_says_that_a_run_agrees(landscape, output) -> None:
    answer = landscape("verify", output, "--points", 2, "-q")
    assert answer.code == 0
    assert "2 points agree: 6 of 6 numbers" in answer.out
    assert answer.err == ""


def test_verify_as_json(landscape, output) -> None:
    answer = landscape("verify", output, "--json", "-q")
    assert answer.code == 0
    assert answer.json["agrees"] is True
    assert answer.json["points"] == 3
    assert answer.json["differences"] == []


def test_verify_exits_with_1_and_names_what_differs(landscape, output) -> None:
    with h5py.File(output, "r+") as file:
        file["gradient_change"][...] *= 1.01
        versions = json.loads(file.attrs["versions"])
        file.attrs["versions"] = json.dumps({**versions, "torch": "1.0"})
    answer = landscape("verify", output, "-q")
    assert answer.code == 1
    assert "torch differs: was 1.0" in answer.out
    assert len(answer.lines) == 3
    assert answer.lines[0] == "error: the run does not agree with what is measured now"
    assert "3 of 9 numbers, such as the gradient_change" in answer.lines[1]
    assert "torch" in answer.lines[2]


@pytest.mark.parametrize(
    ("arguments", "code"), [(("nothing.h5",), 1), (("mine.py",), 1), (("run.h5", "--points", 0), 2)]
)
def test_verify_says_in_three_lines_what_is_wrong(landscape, place, arguments, code) -> None:
    name, *more = arguments
    answer = landscape("verify", place / name, *more)
    assert answer.code == code
    assert [line.split()[0] for line in answer.lines] == ["error:", "seen:", "try:"]
