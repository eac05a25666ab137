"""Several workers give the numbers of one, wherever they are and whatever happens to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cases
import numpy as np
import pytest
import torch
from crews import Stopping, Watching, assert_same
from safetensors.torch import save_file

import landscape_cli as landscape
from landscape_cli.engine.conditions import Conditions
from landscape_cli.engine.crew import Answer, Call, Crew, Loss
from landscape_cli.engine.station import Greeting, Outcome
from landscape_cli.errors import LandscapeError, MeasurementError
from landscape_cli.plan import Plan, PlannedCheckpoint
from landscape_cli.units import UnitKey, UnitResult

PLACES = [
    pytest.param({"device": "cpu,cpu"}, id="processes"),
    pytest.param(
        {"engine": "ray", "workers": 2}, id="ray", marks=[pytest.mark.ray, pytest.mark.slow]
    ),
]


@pytest.mark.parametrize("place", PLACES)
def test_live_objects_on_workers_give_the_numbers_of_one_process(
    tmp_path: Path, place: dict
) -> None:
    if place.get("engine") == "ray":
        pytest.importorskip("ray")
    folder = tmp_path / "steps"
    folder.mkdir()
    for step in range(3):
        state = cases.Awkward(seed=step).state_dict()
        state = {name: t.clone() for name, t in state.items() if name != "again.weight"}
        save_file(state, folder / f"{step}.safetensors", {"learning_rate": "0.1"})
    (folder / "bad.safetensors").write_bytes(b"not a checkpoint")
    model = cases.Awkward(seed=9)
    arguments = {
        "model": model,
        "data": cases.awkward_data(),
        "directions": ("gradient", "update", "random:1"),
        "strategy": "stacked",
        "chunk": 4,
        "steps": "0.5:4:10",
        "plane": "gradient,random:0",
        "plane_steps": "-1:1:5:lin",
    }
    one = landscape.probe(folder, **arguments)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    output, progress = tmp_path / "run.h5", Watching()
    # What is begun by one process is gone on with by several, and by one again.
    with pytest.raises(KeyboardInterrupt):
        landscape.probe(folder, **arguments, output=output, progress=Stopping(after=2))
    run = landscape.probe(
        folder, **arguments, **place, output=output, resume=True, progress=progress
    )
    assert_same(run, one)
    for name in ("strategy", "chunk", "threads", "device", "notices", "status"):
        assert run.attributes[name] == one.attributes[name], name
    assert run.attributes["status"] == "partial"
    assert progress.points == 4 * (3 * 10 + 25)
    assert any("/2 workers" in where for where in progress.where)
    assert any(text.startswith("bad") for text in progress.notices)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    again = landscape.probe(folder, **arguments, output=output, resume=True)
    assert_same(again, one)


# --- workers that are made up, in this process


@dataclass
class Imagined:
    """A transport to workers that answer at once, or fail as a test says.

    Attributes:
        fails: is asked before a worker answers; returns a loss or an error, or None.
        devices: what the workers compute on, in their order.
    """

    fails: Callable[[int, Call], str | LandscapeError | None]
    size: int = 2
    threads: int = 1
    devices: tuple[str, ...] = ("cpu x86_64",)
    alive: set[int] = field(default_factory=set)
    calls: list[tuple[int, Call]] = field(default_factory=list)
    measured: list[UnitKey] = field(default_factory=list)
    revised: bool = False

    def __enter__(self) -> Imagined:
        return self

    def __exit__(self, *exception: object) -> None:
        self.alive.clear()

    def start(self, number: int) -> None:
        self.alive.add(number)
        self.ask(number, Call("open"))

    def ask(self, number: int, call: Call) -> None:
        self.calls.append((number, call))

    def arrivals(self) -> list[Answer | Loss]:
        (number, call), self.calls = self.calls[0], self.calls[1:]
        if number not in self.alive:
            return []
        failure = self.fails(number, call)
        if isinstance(failure, str):
            return [Loss(number, "a worker was lost", failure)]
        if failure is not None:
            return [Answer(number, call, error=failure)]
        return [Answer(number, call, self._answer(number, call))]

    def _answer(self, number: int, call: Call) -> Any:
        if call.question == "open":
            return Greeting(self.devices[number % len(self.devices)], "here", number)
        if call.question == "settle":
            return Conditions(1)
        if call.question == "choose":
            return UnitResult(UnitKey(-1, "choice", "stacked", 0, 1))
        key, settled = call.about
        self.measured.append(key)
        unit = UnitResult(key, {"threads": np.array(settled.conditions.threads)})
        if key.start == 4 and not self.revised:
            self.revised = True
            return Outcome((unit, UnitResult(UnitKey(-1, "choice", "plain", 1, 1))), opened=True)
        assert (settled.choice.strategy == "plain") <= self.revised
        return Outcome((unit,), opened=True)

    def stop(self, number: int) -> None:
        self.alive.discard(number)

    def starved(self) -> MeasurementError:
        return MeasurementError("no worker is there")


PLAN = Plan(
    settings={"steps": "0.5:4:16"},
    checkpoints=tuple(PlannedCheckpoint(name, "", 0, 0.1, "") for name in "abc"),
    directions=("gradient",),
    unscaled=(),
    step_multiples=tuple(np.linspace(0.5, 4, 16).tolist()),
)
EVERY = {(checkpoint, start) for checkpoint in range(3) for start in (0, 4, 8, 12)}


def measure(transport: Imagined, progress: Watching, finished=()) -> list[UnitResult]:
    with Crew(transport, progress) as crew:
        units = list(crew.run(PLAN, finished=finished, unit_points=4, progress=progress))
    assert not transport.alive
    return units


def lines(units: list[UnitResult]) -> list[tuple[int, int]]:
    return [(u.key.checkpoint, u.key.start) for u in units if u.key.kind == "line" and not u.error]


def test_everything_is_measured_once_with_what_was_settled_once() -> None:
    transport, progress = Imagined(lambda number, call: None), Watching()
    units = measure(transport, progress)
    assert sorted(lines(units)) == sorted(EVERY)
    assert [u.key.kind for u in units[:2]] == ["threads", "choice"]
    choices = [u.key for u in units if u.key.kind == "choice"]
    assert [(key.name, key.start) for key in choices] == [("stacked", 0), ("plain", 1)]
    assert progress.points == 3 * 16


def test_units_of_lost_workers_are_measured_by_their_successors() -> None:
    lost = set()

    def fails(number: int, call: Call) -> str | None:
        if call.question == "measure" and number % 3 == 0 and number < 10:
            lost.add(number)
            return "gone"
        return None

    progress = Watching()
    assert sorted(lines(measure(Imagined(fails), progress))) == sorted(EVERY)
    assert lost
    assert sum("another is starting" in text for text in progress.notices) == len(lost)


def test_a_worker_that_is_lost_while_it_is_asked_is_asked_for_by_another() -> None:
    def fails(number: int, call: Call) -> str | None:
        asked = ("settle", "choose")
        return "gone" if call.question in asked and number == asked.index(call.question) else None

    assert sorted(lines(measure(Imagined(fails), Watching()))) == sorted(EVERY)


def test_a_unit_that_nobody_survives_is_recorded_as_failed_alone() -> None:
    deaths = []

    def fails(number: int, call: Call) -> str | None:
        if call.question == "measure" and call.about[0] == UnitKey(1, "line", "gradient", 8, 12):
            deaths.append(number)
            return "gone"
        return None

    units = measure(Imagined(fails), Watching())
    assert sorted(lines(units)) == sorted(EVERY - {(1, 8)})
    (failed,) = [unit for unit in units if unit.error]
    assert failed.key == UnitKey(1, "line", "gradient", 8, 12)
    assert "a worker died of it" in failed.error
    assert len(deaths) == 3


def test_workers_that_are_lost_again_and_again_end_the_run() -> None:
    transport = Imagined(lambda n, call: "out of memory" if call.question == "measure" else None)
    with pytest.raises(MeasurementError, match="lost again and again") as caught:
        measure(transport, Watching())
    assert caught.value.seen == "out of memory"
    assert not transport.alive


def test_a_worker_that_cannot_begin_is_done_without() -> None:
    refusal = MeasurementError("out of memory", seen="cuda:1")

    def fails(number: int, call: Call) -> LandscapeError | None:
        return refusal if call.question == "open" and number == 1 else None

    progress = Watching()
    assert sorted(lines(measure(Imagined(fails), progress))) == sorted(EVERY)
    assert "a worker could not begin: out of memory: cuda:1" in progress.notices


def test_what_the_only_workers_cannot_build_is_told_as_it_is() -> None:
    transport = Imagined(lambda n, call: MeasurementError("no such layer"))
    with pytest.raises(MeasurementError, match="no such layer"):
        measure(transport, Watching())
    assert not transport.alive


@pytest.mark.parametrize(
    ("devices", "told"),
    [
        (("cuda:0 NVIDIA A", "cuda:1 NVIDIA A"), False),
        (("cuda:0 NVIDIA A", "cuda:1 NVIDIA B"), True),
    ],
)
def test_devices_that_round_differently_are_told_and_others_are_not(devices, told) -> None:
    progress = Watching()
    measure(Imagined(lambda number, call: None, devices=devices), progress)
    assert any("rounding is not the same" in text for text in progress.notices) == told


def test_more_threads_than_there_is_room_for_are_kept_and_told() -> None:
    progress = Watching()
    before = [UnitKey(-1, "threads", stop=8), UnitKey(-1, "choice", "stacked", 0, 1)]
    units = measure(Imagined(lambda number, call: None, threads=2), progress, finished=before)
    assert {int(u.arrays["threads"]) for u in units if u.key.kind == "line"} == {8}
    assert any("begun with 8 threads" in text for text in progress.notices)
