"""The history file: its numbers, its growth, and what a crash leaves."""

import numpy as np
import pandas as pd
import pytest
import torch

from landscape_cli.errors import CheckpointError
from landscape_cli.record import read_history
from landscape_cli.record.history import FLUSH_ROWS, History


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.csv"


def test_numbers_come_back_to_the_last_bit(path):
    history = History(path)
    values = [0.1, 1 / 3, float("inf"), float("-inf"), float("nan"), 1e-320]
    for step, value in enumerate(values, 1):
        history.note(step, {"loss": value})
    history.flush(last=True)
    found = read_history(path)
    assert found["step"].tolist() == [1, 2, 3, 4, 5, 6]
    assert np.array_equal(found["loss"], values, equal_nan=True)


def test_pandas_reads_the_same_numbers(path):
    history = History(path)
    history.note(1, {"loss": float("inf")})
    history.note(2, {"loss": 0.25, "accuracy": 0.5})
    history.flush(last=True)
    frame = pd.read_csv(path)
    assert list(frame.columns) == ["step", "loss", "accuracy"]
    assert frame.loss.tolist() == [float("inf"), 0.25]
    assert np.isnan(frame.accuracy[0])


def test_one_step_has_one_row_whatever_is_said_later(path):
    history = History(path)
    history.note(1, {"learning_rate": 0.1})
    history.flush()
    history.note(1, {"loss": 2.0})
    history.flush(last=True)
    assert path.read_text() == "step,learning_rate,loss\n1,0.1,2.0\n"


def test_a_new_column_is_empty_before_it_came(path):
    history = History(path)
    history.note(1, {"loss": 2.0})
    history.flush(last=True)
    history.note(2, {"loss": 1.0, "accuracy": 0.5})
    history.flush(last=True)
    found = read_history(path)
    assert np.array_equal(found["accuracy"], [np.nan, 0.5], equal_nan=True)
    assert found["loss"].tolist() == [2.0, 1.0]


def test_a_tensor_is_noted_as_it_was_and_not_kept_alive_with_its_graph(path):
    history = History(path)
    weight = torch.ones((), requires_grad=True)
    loss = weight * 3
    history.note(1, {"loss": loss})
    with torch.no_grad():
        loss.fill_(7)
    assert not history._rows[0]["loss"].requires_grad
    history.flush(last=True)
    assert read_history(path)["loss"].tolist() == [3.0]


def test_rows_reach_the_disk_without_being_asked_to(path):
    history = History(path)
    for step in range(1, FLUSH_ROWS + 3):
        history.note(step, {"loss": 1.0})
    assert len(read_history(path)["step"]) >= FLUSH_ROWS


def test_a_row_that_was_cut_off_is_left_out(path):
    path.write_text("step,loss\n1,2.0\n2,1.2345")
    assert read_history(path)["step"].tolist() == [1]


def test_truncate_drops_what_training_goes_through_again(path):
    history = History(path)
    for step in (1, 2, 3):
        history.note(step, {"loss": float(step)})
    history.flush(last=True)
    again = History(path)
    again.truncate(2)
    again.note(2, {"loss": 20.0})
    again.flush(last=True)
    assert read_history(path)["loss"].tolist() == [1.0, 20.0]


def test_no_history_and_a_damaged_one_are_errors(path):
    with pytest.raises(CheckpointError, match="no history"):
        read_history(path.parent)
    path.write_text("step,loss\n1,two\n")
    with pytest.raises(CheckpointError, match="damaged"):
        read_history(path)
