"""The engine Ray gives the numbers of the local one, whatever happens to workers and nodes."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import cases
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import landscape_cli as landscape
from landscape_cli.errors import LandscapeError, MeasurementError, SpecError
from landscape_cli.journal import Journal, read

FIRST, SECOND = "127.0.0.2", "127.0.0.3"
PATIENCE = 150.0
"""Seconds that anything may take on a machine that others use."""

MODEL = """
import os, time
import torch
from torch import nn

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))

    def forward(self, x):
        time.sleep(float(os.environ.get("PAUSE", "0")))
        return self.layers(x)

def make():
    torch.manual_seed(0)
    return Slow()
"""


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.05)


@dataclass
class Place:
    """A trajectory, a model and data, as somebody on the command line has them."""

    folder: Path
    checkpoints: int = 3

    def prepare(self) -> Place:
        (self.folder / "mine.py").write_text(MODEL)
        scope: dict = {}
        exec(MODEL, scope)
        (self.folder / "steps").mkdir()
        for step in range(self.checkpoints):
            model = scope["make"]()
            with torch.no_grad():
                model.layers[0].weight.mul_(1 + step)
            metadata = {"training_step": str(step), "learning_rate": "0.1"}
            save_file(model.state_dict(), self.folder / "steps" / f"{step}.safetensors", metadata)
        x, y = (tensor.numpy() for tensor in cases.classification_data().tensors)
        np.savez(self.folder / "data.npz", x=x, y=y)
        return self

    @property
    def settings(self) -> dict:
        return {
            "model": f"{self.folder / 'mine.py'}:make",
            "data": f"npz:{self.folder / 'data.npz'}",
            "strategy": "plain",
            "steps": "0.5:4:16",
            "directions": ("gradient", "random:2"),
            "measures": ("covariate_shift",),
        }

    def arguments(self) -> list[str]:
        listed = {"directions": "direction", "measures": "measure"}
        values = [
            (listed.get(name, name), value)
            for name, given in self.settings.items()
            for value in ([given] if isinstance(given, str) else given)
        ]
        options = [f"--{name}={value}" for name, value in values]
        return ["probe", str(self.folder / "steps"), *options]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path).prepare()


def assert_same(run: landscape.Run, other: landscape.Run) -> None:
    assert set(run) == set(other)
    for path in run:
        np.testing.assert_array_equal(run[path], other[path], err_msg=path)


# --- one machine, a cluster of the run's own


@dataclass
class Watching:
    """Progress that keeps what it is told."""

    points: int = 0
    where: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def start(self, points: int) -> None:
        pass

    def advance(self, points: int, where: str) -> None:
        self.points += points
        self.where.append(where)

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.mark.ray
@pytest.mark.slow
def test_live_objects_on_workers_give_the_numbers_of_the_local_engine(tmp_path: Path) -> None:
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
    local = landscape.probe(folder, **arguments)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    progress = Watching()
    output = tmp_path / "run.h5"
    run = landscape.probe(
        folder, **arguments, engine="ray", workers=2, output=output, progress=progress
    )
    assert_same(run, local)
    for name in ("strategy", "chunk", "threads", "device", "notices", "status"):
        assert run.attributes[name] == local.attributes[name], name
    assert run.attributes["status"] == "partial"
    assert progress.points == 4 * (3 * 10 + 25)
    assert any("/2 workers" in where for where in progress.where)
    assert any(text.startswith("bad") for text in progress.notices)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    # What was begun on a cluster is gone on with here.
    again = landscape.probe(folder, **arguments, output=output, resume=True)
    assert_same(again, local)


# --- a cluster of two nodes on one machine


@dataclass
class Node:
    """A node, as `ray start` runs it, in a session of its own."""

    process: subprocess.Popen

    def pids(self, named: str = "") -> list[int]:
        """Return its processes whose title begins so."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
                title = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue  # it has just ended
            if session == self.process.pid and title.startswith(named):
                found.append(int(entry.name))
        return found

    def kill(self) -> None:
        for pid in self.pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


@dataclass
class TwoNodes:
    address: str
    first: Node
    second: Node
    environment: dict[str, str]


def free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


def start_node(host: str, *options: str, environment: dict[str, str], log: Path) -> Node:
    ray = Path(sys.executable).parent / "ray"
    command = [str(ray), "start", "--block", f"--node-ip-address={host}", "--num-cpus=2"]
    command += ["--object-store-memory=80000000", "--disable-usage-stats", *options]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, env=environment, stdout=stream, stderr=stream, start_new_session=True
        )
    return Node(process)


@pytest.fixture
def two_nodes(tmp_path: Path) -> Iterator[TwoNodes]:
    pytest.importorskip("ray")
    # Ray's sockets need short paths.
    sockets = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_failure_threshold": "4",
        "OMP_NUM_THREADS": "1",
        "PAUSE": "0.1",
    }
    port = free_port(FIRST)
    address = f"{FIRST}:{port}"
    about = {"environment": environment}
    nodes = []
    try:
        head = ("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={sockets}")
        nodes.append(start_node(FIRST, *head, **about, log=tmp_path / "first.log"))
        wait_until(lambda: answers(FIRST, port), "the head of the cluster answers")
        joining = f"--address={address}"
        nodes.append(start_node(SECOND, joining, **about, log=tmp_path / "second.log"))
        # A node is there once its own agents are.
        wait_until(lambda: nodes[1].pids("ray::RuntimeEnvAgent") != [], "the second node is up")
        yield TwoNodes(address, *nodes, environment)
    finally:
        for node in nodes:
            node.kill()
        shutil.rmtree(sockets, ignore_errors=True)


def answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


AT_WORK = "ray::Station.measure"
"""How Ray titles the process of a worker that measures a unit."""


def kill_one(node: Node) -> bool:
    """Kill a worker of a node in the middle of a unit; whether there was one."""
    for pid in node.pids(AT_WORK)[:1]:
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def finished_units(output: Path) -> int:
    try:
        return len(read(Journal.path_of(output))[1])
    except LandscapeError:
        return 0


@pytest.mark.ray
@pytest.mark.slow
def test_a_worker_and_then_a_node_are_killed_and_the_run_is_complete(
    place: Place, two_nodes: TwoNodes
) -> None:
    output = place.folder / "run.h5"
    program = "import sys; from landscape_cli.cli.app import main; sys.exit(main())"
    options = ["--engine=ray", "--workers=3", f"--address={two_nodes.address}", f"-o{output}"]
    probing = subprocess.Popen(
        [sys.executable, "-c", program, *place.arguments(), *options],
        env=two_nodes.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        for node in (two_nodes.first, two_nodes.second):
            wait_until(lambda: node.pids(AT_WORK) != [], "both nodes are at work")  # noqa: B023
        wait_until(lambda: finished_units(output) >= 4, "some units are finished")
        wait_until(lambda: kill_one(two_nodes.first), "a worker is killed at its work")
        at_first_kill = finished_units(output)
        wait_until(lambda: finished_units(output) >= at_first_kill + 1, "more is finished")
        wait_until(lambda: two_nodes.second.pids(AT_WORK) != [], "the second node is at work")
        two_nodes.second.kill()
        at_second_kill = finished_units(output)
        assert not output.exists() or not landscape.open_run(output).complete
        _, messages = probing.communicate(timeout=PATIENCE)
    finally:
        probing.kill()
        probing.wait()
    assert probing.returncode == 0, messages
    assert messages.count("was lost") >= 2, messages
    run = landscape.open_run(output)
    assert run.complete
    assert 4 <= at_first_kill < at_second_kill
    local = landscape.probe(place.folder / "steps", **place.settings)
    assert_same(run, local)


# --- what cannot be reached, and what is not there


@pytest.mark.ray
def test_a_cluster_that_is_not_there_is_told_soon(place: Place) -> None:
    pytest.importorskip("ray")
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    with pytest.raises(MeasurementError, match="cannot be reached") as caught:
        landscape.probe(place.folder / "steps", **place.settings, engine="ray", address=address)
    assert address in caught.value.seen
    assert "RAY_AUTH_TOKEN" in caught.value.hint


def test_without_ray_the_extra_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MeasurementError, match="ray is not installed") as caught:
        landscape.probe(place.folder / "steps", **place.settings, engine="ray")
    assert "landscape-cli[ray]" in caught.value.hint


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gpus_per_worker": 1.0}, "--gpus-per-worker is for the engine ray"),
        ({"address": "localhost:6379"}, "--address is for the engine ray"),
        ({"engine": "ray", "gpus_per_worker": -1.0}, "not between 0 and 64"),
        ({"engine": "ray", "gpus_per_worker": float("nan")}, "not between 0 and 64"),
        ({"engine": "ray", "workers": 0}, "--workers is out of range"),
    ],
)
def test_a_placement_that_cannot_be_meant_is_refused(settings: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        landscape.probe("nothing", model="a:b", data="a:b", **settings)
