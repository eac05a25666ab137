"""Which steps a schedule names."""

import numpy as np
import pytest

from landscape_cli.errors import SpecError
from landscape_cli.record.schedule import Schedule


def steps(limit=1001, **arguments):
    schedule = Schedule.of(**arguments)
    return [step for step in range(limit) if step in schedule]


def test_every_names_the_multiples_and_the_start():
    assert steps(11, every=5) == [0, 5, 10]


def test_at_names_its_steps_alone():
    assert steps(at=(7, 3, 3)) == [3, 7]


def test_steps_may_come_from_numpy():
    assert steps(at=np.arange(3, 9, 3), every=np.int64(500)) == [0, 3, 6, 500, 1000]


def test_log_is_one_two_five():
    assert steps(schedule="log") == [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]


@pytest.mark.parametrize("count", [1, 2, 4, 5, 7, 10, 50])
def test_a_log_grid_is_the_rounded_powers(count):
    wanted = {0, *(round(10 ** (k / count)) for k in range(3 * count + 1))}
    assert steps(schedule=f"log:{count}") == sorted(wanted)


def test_parts_add_up():
    assert steps(101, every=50, at=(3,), schedule="log:1") == [0, 1, 3, 10, 50, 100]


def test_without_arguments_every_hundredth_step_is_named():
    assert steps(301) == [0, 100, 200, 300]


@pytest.mark.parametrize(
    "arguments",
    [
        {"every": 0},
        {"every": 2.5},
        {"every": True},
        {"at": (-1,)},
        {"at": (1.5,)},
        {"schedule": "linear"},
        {"schedule": "log:"},
        {"schedule": "log:0"},
        {"schedule": "log:x"},
    ],
)
def test_what_is_no_schedule_is_refused(arguments):
    with pytest.raises(SpecError) as caught:
        Schedule.of(**arguments)
    assert caught.value.seen
    assert caught.value.hint
