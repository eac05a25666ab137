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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from crews import PATIENCE, PROGRAM, Place, assert_same, finished_units, wait_until

import landscape_cli as landscape
from landscape_cli.errors import MeasurementError, SpecError

FIRST, SECOND = "127.0.0.2", "127.0.0.3"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path).prepare()


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


@pytest.mark.ray
@pytest.mark.slow
def test_a_worker_and_then_a_node_are_killed_and_the_run_is_complete(
    place: Place, two_nodes: TwoNodes
) -> None:
    output = place.folder / "run.h5"
    options = ["--engine=ray", "--workers=3", f"--address={two_nodes.address}", f"-o{output}"]
    probing = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *place.arguments(), *options],
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
