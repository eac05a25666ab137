"""Processes of one machine measure together, and none is left however the run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from crews import (
    PATIENCE,
    PROGRAM,
    Place,
    Stopping,
    Watching,
    assert_same,
    children,
    finished_units,
    is_running,
    quiet_environment,
    wait_until,
)
from torch import nn

import landscape_cli as landscape
from landscape_cli.devices import choose_devices
from landscape_cli.engine.processes import Processes
from landscape_cli.engine.serving import MOST_MESSAGES, forget_messages
from landscape_cli.errors import LandscapeError, MeasurementError, SpecError
from landscape_cli.journal import Journal
from landscape_cli.sending import BY_VALUE


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path).prepare()


class Probing:
    """`landscape probe`, as started from a terminal: a group of processes of its own."""

    def __init__(self, place: Place, *options: str, pause: float) -> None:
        self.output = place.folder / "run.h5"
        arguments = [*place.arguments(), f"-o{self.output}", *options]
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            env=quiet_environment(PAUSE=str(pause)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._before = finished_units(self.output)

    @property
    def workers(self) -> list[int]:
        return children(self.process.pid)

    def wait_for_units(self, count: int) -> None:
        enough = self._before + count
        wait_until(lambda: finished_units(self.output) >= enough, f"{count} units are finished")
        assert self.process.poll() is None, "it was to be disturbed in the middle"

    def end(self) -> tuple[int, str]:
        _, messages = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, messages


@pytest.fixture
def start(place: Place) -> Iterator:
    started: list[Probing] = []

    def begin(*options: str, pause: float = 0.02) -> Probing:
        started.append(Probing(place, *options, pause=pause))
        return started[-1]

    yield begin
    for probing in started:
        if probing.process.poll() is None:
            os.killpg(probing.process.pid, signal.SIGKILL)
        probing.process.communicate()


@pytest.mark.slow
def test_a_run_that_is_interrupted_and_killed_in_every_way_ends_with_the_same_numbers(
    place: Place, start
) -> None:
    interrupted = start("--device=cpu,cpu")
    interrupted.wait_for_units(3)
    workers = interrupted.workers
    assert len(workers) == 2
    os.killpg(interrupted.process.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
    code, messages = interrupted.end()
    assert code == 130, messages
    assert messages.rstrip().splitlines()[-3] == "error: interrupted"
    assert "Traceback" not in messages
    assert not any(map(is_running, workers))

    killed = start("--workers=2", "--device=cpu", "--resume")
    killed.wait_for_units(1)
    victim = killed.workers[0]
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: set(killed.workers) - {*workers, victim}, "another worker starts")
    killed.wait_for_units(4)
    workers = killed.workers
    killed.process.kill()
    _, messages = killed.end()
    assert "a worker on cpu was lost (killed, as happens when memory runs out)" in messages
    wait_until(lambda: not any(map(is_running, workers)), "no worker is left")

    settings, output = place.settings, killed.output
    run = landscape.probe(place.folder / "steps", **settings, output=output, resume=True)
    assert run.complete
    assert not Journal.path_of(output).exists()
    assert_same(run, landscape.probe(place.folder / "steps", **settings))


def test_a_point_that_kills_its_worker_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, checkpoints=1, steps="1:1000000:4").prepare()
    settings = {**place.settings, "chunk": 1, "directions": ("gradient",), "measures": ()}
    expected = landscape.probe(place.folder / "steps", **settings)
    monkeypatch.setenv("DEADLY", "1000")
    progress, others = Watching(), children(os.getpid())
    run = landscape.probe(place.folder / "steps", **settings, device="cpu,cpu", progress=progress)
    assert run["status"].tolist() == [[[1, 1, 1, 0]]]
    np.testing.assert_array_equal(run["loss"][..., :3], expected["loss"][..., :3])
    assert run.attributes["status"] == "partial"
    assert "a worker died of it, again and again" in run.attributes["notices"]
    assert sum("was lost" in text for text in progress.notices) == 3
    assert children(os.getpid()) == others


SCRIPT = """
import sys
import torch
import landscape_cli as landscape

with open("ran.txt", "a") as file:
    file.write("once\\n")

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x).tanh()

torch.manual_seed(0)
x, y = torch.randn(8, 3), torch.arange(8) % 2
data = torch.utils.data.TensorDataset(x, y)
settings = {"model": Net(), "data": data, "lr": 0.1, "steps": "0.5:4:9", "directions": "random:2"}
one = landscape.probe(**settings)
two = landscape.probe(**settings, device="cpu,cpu")
assert (one["loss"] == two["loss"]).all() and two.complete
print(two.settings["device"], two.attributes["device"] == one.attributes["device"])
"""


def test_a_script_without_a_guard_runs_once_and_its_own_model_is_measured(tmp_path: Path) -> None:
    if not any(map(_is_there, BY_VALUE)):
        pytest.skip("needs cloudpickle")
    (tmp_path / "script.py").write_text(SCRIPT)
    finished = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=quiet_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "cpu,cpu True\n"
    assert finished.stderr == ""
    assert (tmp_path / "ran.txt").read_text() == "once\n"


def _is_there(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return False
    return True


def test_what_only_the_script_defines_needs_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BY_VALUE:
        monkeypatch.setitem(sys.modules, name, None)
    net = type("Net", (nn.Linear,), {"__module__": "__main__"})
    data = torch.utils.data.TensorDataset(torch.randn(8, 3), torch.zeros(8, dtype=torch.int64))
    with pytest.raises(MeasurementError, match="cannot be sent to other processes") as caught:
        landscape.probe(model=net(3, 2), data=data, lr=0.1, device="cpu,cpu")
    assert caught.value.seen == "Net is defined in the script that runs"
    assert "give them as specs" in caught.value.hint
    assert "pip install cloudpickle" in caught.value.hint


def test_a_model_that_cannot_be_pickled_is_refused_before_a_process_starts() -> None:
    model = nn.Linear(3, 2)
    model.lock = threading.Lock()
    data = torch.utils.data.TensorDataset(torch.randn(8, 3), torch.zeros(8, dtype=torch.int64))
    with pytest.raises(MeasurementError, match="cannot be sent to other processes") as caught:
        landscape.probe(model=model, data=data, lr=0.1, device="cpu,cpu")
    assert "lock" in caught.value.seen
    assert "give them as specs" in caught.value.hint


def test_batches_of_classes_in_a_users_files_are_found_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "kinds.py").write_text("class Sample:\n    pass\n")
    (tmp_path / "mine.py").write_text(
        "from kinds import Sample\nclass Batch:\n    class Inner:\n        pass\n"
        "def make():\n    return [Batch(), Batch.Inner(), Sample()]\n"
    )
    sender = (
        "import sys\nfrom landscape_cli import sending\nfrom landscape_cli.adapters import file\n"
        "sys.stdout.buffer.write(sending.pack(file.call('mine.py:make', 'data', {})))"
    )
    receiver = (
        "import pickle, sys\n"
        "print([type(item).__qualname__ for item in pickle.load(sys.stdin.buffer)])"
    )
    about = {"cwd": tmp_path, "stdout": subprocess.PIPE, "timeout": PATIENCE}
    sent = subprocess.run([sys.executable, "-c", sender], check=True, **about).stdout
    found = subprocess.run([sys.executable, "-P", "-c", receiver], check=True, input=sent, **about)
    assert found.stdout.decode() == "['Batch', 'Batch.Inner', 'Sample']\n"


def test_a_worker_that_cannot_build_the_model_says_why(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.folder / "mine.py").write_text(
        "import os\nfrom torch import nn\n"
        "def make():\n    assert str(os.getpid()) == os.environ['DRIVER'], 'no such weights'\n"
        "    return nn.Linear(4, 3)\n"
    )
    monkeypatch.setenv("DRIVER", str(os.getpid()))
    others = children(os.getpid())
    with pytest.raises(LandscapeError) as caught:
        landscape.probe(place.folder / "steps", **place.settings, device="cpu,cpu")
    assert "no such weights" in str(caught.value)
    assert children(os.getpid()) == others


def test_an_interpreter_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with (
        Processes(["cpu"], b"", threads=1) as processes,
        pytest.raises(MeasurementError, match="cannot be started") as caught,
    ):
        processes.start(0)
    assert "/nowhere/python" in caught.value.seen


def test_a_process_that_dies_at_once_says_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    from landscape_cli.engine import processes

    monkeypatch.setattr(processes, "PROGRAM", "raise SystemExit('no room\\n')")
    with Processes(["cpu"], b"", threads=1) as transport:
        transport.start(0)
        wait_until(transport.arrivals, "it is lost")
        assert transport.starved().seen == "exit status 1: no room"


def test_messages_that_pile_up_are_forgotten(tmp_path: Path) -> None:
    with (tmp_path / "messages").open("w+b", buffering=0) as file:
        file.write(b"kept, ")
        forget_messages(file.fileno())
        file.write(b"x" * MOST_MESSAGES)
        forget_messages(file.fileno())
        file.write(b"last words")
    assert (tmp_path / "messages").read_bytes() == b"last words"


# --- which devices, and how many


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"device": "cpu,"}, "has no name"),
        ({"device": "auto,cpu"}, "names each of them"),
        ({"device": "cuda,cuda"}, "names each of them"),
        ({"device": "cpu,cuda:0"}, "do not round alike"),
        ({"device": "cpu,cpu,cpu", "workers": 2}, "fewer workers than devices"),
        ({"device": "cpu,cpu", "engine": "ray"}, "is for the engine local"),
        ({"workers": 257}, "--workers is out of range"),
        ({"device": "cpu,gpu0"}, "do not round alike"),
        ({"device": "gpu0,gpu0"}, "no such device"),
        ({"device": "cuda:0,cuda:99"}, "there is no such GPU here"),
    ],
)
def test_devices_that_cannot_be_meant_are_refused(place: Place, settings, message) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        landscape.probe(place.folder / "steps", **place.settings, **settings)
    assert caught.value.seen
    assert caught.value.hint


@pytest.mark.parametrize(
    ("names", "count", "gpus", "expected"),
    [
        (["cpu"], 1, 0, ["cpu"]),
        (["cpu"], 3, 2, ["cpu"] * 3),
        (["auto"], 2, 0, ["cpu"] * 2),
        (["auto"], 2, 3, ["cuda:0", "cuda:1"]),
        (["cuda"], 2, 2, ["cuda:0", "cuda:1"]),
        (["cuda:1"], 2, 2, ["cuda:1"] * 2),
        (["cuda:0", "cuda:2"], 2, 4, ["cuda:0", "cuda:2"]),
        (["cuda:0", "cuda:1"], 3, 2, ["cuda:0", "cuda:1", "cuda:0"]),
    ],
)
def test_devices_are_dealt_out_to_workers(
    names, count, gpus, expected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    assert list(map(str, choose_devices(names, count))) == expected


def test_more_workers_than_gpus_have_to_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(SpecError, match="no such GPU") as caught:
        choose_devices(["cuda"], 2)
    assert "cuda:0,cuda:0" in caught.value.hint


@pytest.mark.gpu
def test_two_gpus_give_the_numbers_of_one(place: Place) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    settings = {**place.settings, "directions": ("gradient", "random:4")}
    output = place.folder / "run.h5"
    for strategy in ("plain", "graph", "stacked"):
        settings["strategy"] = strategy
        one = landscape.probe(place.folder / "steps", **settings, device="cuda:0")
        second = landscape.probe(place.folder / "steps", **settings, device="cuda:1")
        with pytest.raises(KeyboardInterrupt):
            landscape.probe(
                place.folder / "steps",
                **settings,
                device="cuda:1",
                output=output,
                overwrite=True,
                progress=Stopping(after=2),
            )
        both = landscape.probe(
            place.folder / "steps", **settings, device="cuda:0,cuda:1", output=output, resume=True
        )
        if torch.cuda.get_device_name(0) == torch.cuda.get_device_name(1):
            assert_same(second, one)
            assert_same(both, one)
        assert both.complete
