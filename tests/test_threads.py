from __future__ import annotations

import time

import pytest
import torch

from landscape_cli import threads


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with threads.limited(4):
        yield


def sleeper(alone: float, together: float):
    return lambda: time.sleep(alone if torch.get_num_threads() == 1 else together)


@pytest.mark.parametrize(
    ("alone", "together", "expected"), [(0.001, 0.0, 1), (0.03, 0.005, 4), (0.03, 0.06, 1)]
)
@pytest.mark.usefixtures("four")
def test_more_threads_are_used_where_they_pay(alone, together, expected) -> None:
    assert threads.settle(sleeper(alone, together)) == expected
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("four")
def test_a_number_that_the_user_set_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert threads.settle(sleeper(0.0, 1.0)) == 4


def test_the_number_comes_back_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), threads.limited(before + 1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == before
