from __future__ import annotations

import pickle

from landscape_cli.errors import CheckpointError, SpecError


def test_an_error_is_three_short_lines() -> None:
    error = SpecError("no such direction", seen="up", hint="gradient or random:N")
    assert str(error) == "no such direction\n  seen:  up\n  try:   gradient or random:N"
    assert error.exit_code == 2


def test_lines_with_nothing_to_say_are_left_out() -> None:
    assert CheckpointError("it is gone").lines() == [("error", "it is gone")]


def test_an_error_crosses_processes_whole() -> None:
    error = pickle.loads(pickle.dumps(CheckpointError("a", seen="b", hint="c")))
    assert (type(error), error.what, error.seen, error.hint) == (CheckpointError, "a", "b", "c")
