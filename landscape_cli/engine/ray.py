"""The engine Ray: workers of a crew on the machines of a cluster."""

from __future__ import annotations

import logging
import os
import socket
import sys
from pathlib import Path
from typing import Any

from landscape_cli.engine.crew import Answer, Call, Loss
from landscape_cli.engine.station import Greeting, Place, Station
from landscape_cli.engine.worker import describe
from landscape_cli.errors import LandscapeError, MeasurementError
from landscape_cli.specs import ProbeSpec

REACH_SECONDS = 10.0
"""How long the head of a cluster may take to answer."""


class Cluster:
    """A `Transport` to workers on a Ray cluster.

    Model, batches and plan are sent once and fetched once by every worker; checkpoints are read
    where they are measured, from the same paths.

    Args:
        spec: of the run; workers, gpus_per_worker, address and device are used.
        opener: builds a worker; pickled.
    """

    def __init__(self, spec: ProbeSpec, opener: bytes) -> None:
        self._ray = _import_ray()
        self._spec, self._opener = spec, opener
        self.size = spec.workers
        self.threads = _threads_wanted()
        self._gpus = 0.0
        self._owned = False
        self._handles: dict[int, Any] = {}
        self._hosts: dict[int, str] = {}
        self._pending: dict[Any, tuple[int, Call]] = {}

    def __enter__(self) -> Cluster:
        self._owned = _connect(self._ray, self._spec, self.threads)
        try:
            self._gpus = self._gpus_per_worker()
            self._sent = self._ray.put(self._opener)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for number in list(self._handles):
            self.stop(number)
        if self._owned:
            self._ray.shutdown()

    def _gpus_per_worker(self) -> float:
        if self._spec.gpus_per_worker is not None:
            return self._spec.gpus_per_worker
        has_gpus = self._ray.cluster_resources().get("GPU", 0) > 0
        return 1.0 if has_gpus and self._spec.device != "cpu" else 0.0

    def start(self, number: int) -> None:
        """Ask the cluster for a worker; it begins as soon as there is room."""
        kind = self._ray.remote(Station).options(
            num_cpus=self.threads,
            num_gpus=self._gpus,
            max_restarts=0,
            scheduling_strategy="SPREAD",
        )
        self._handles[number] = kind.remote(self._sent)
        device = "cpu" if self._spec.device == "auto" and not self._gpus else self._spec.device
        self.ask(number, Call("open", (Place(device, str(Path.cwd()), tuple(sys.path)),)))

    def ask(self, number: int, call: Call) -> None:
        """Call a method of the station, far away."""
        ref = getattr(self._handles[number], call.question).remote(*call.about)
        self._pending[ref] = (number, call)

    def arrivals(self) -> list[Answer | Loss]:
        """Wait a second at most, and return what has come in."""
        if not self._pending:
            return []
        done, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=1.0)
        return [self._fetch(ref, *self._pending.pop(ref)) for ref in done]

    def _fetch(self, ref: Any, number: int, call: Call) -> Answer | Loss:
        errors = self._ray.exceptions
        try:
            value = self._ray.get(ref)
        except errors.RayTaskError as error:
            return Answer(number, call, error=_cause(error))
        except errors.RayError as error:
            where = f" on {self._hosts[number]}" if number in self._hosts else ""
            return Loss(number, f"a worker{where} was lost", _first_line(error))
        if isinstance(value, Greeting):
            self._hosts[number] = value.host
        return Answer(number, call, value)

    def stop(self, number: int) -> None:
        """Kill a worker, and forget what it was asked."""
        for ref in [ref for ref, (owner, _) in self._pending.items() if owner == number]:
            del self._pending[ref]
        self._ray.kill(self._handles.pop(number), no_restart=True)
        self._hosts.pop(number, None)

    def starved(self) -> MeasurementError:
        """Return the error of a run for which no worker could be started."""
        resources = self._ray.cluster_resources()
        have = ", ".join(f"{resources.get(kind, 0):g} {kind}" for kind in ("CPU", "GPU"))
        return MeasurementError(
            "no worker of the cluster could be started",
            seen=f"each needs {self.threads} CPU, {self._gpus:g} GPU; the cluster has {have}",
            hint="`ray status` shows what is taken; --resume goes on with what was measured",
        )


def _threads_wanted() -> int:
    """Return the CPUs of a worker: ``OMP_NUM_THREADS`` where it says so, else one."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(text)) if text.isdecimal() else 1


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MeasurementError(
            "the engine ray is not installed",
            seen=str(error),
            hint='pip install "landscape-cli[ray]", or --engine local',
        ) from None
    return ray


def _connect(ray: Any, spec: ProbeSpec, cpus: int) -> bool:
    """Connect to the cluster that is asked for, or start one; return whether to end it later."""
    if ray.is_initialized():
        return False
    logging.getLogger("ray").setLevel(logging.ERROR)
    common = {"configure_logging": False, "log_to_driver": False}
    address = spec.address or os.environ.get("RAY_ADDRESS")
    try:
        if address is None:
            count = max(os.cpu_count() or 1, spec.workers * cpus)
            ray.init("local", num_cpus=count, include_dashboard=False, **common)
        else:
            _check_address(address)
            ray.init(address, **common)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise MeasurementError(
            "the Ray cluster cannot be reached" if address else "Ray cannot be started here",
            seen=f"{address or 'this machine'}: {_first_line(error)}",
            hint="--address HOST:PORT of its head, from one of its nodes, with the RAY_AUTH_MODE "
            "and RAY_AUTH_TOKEN that it was started with"
            if address
            else "--engine local",
        ) from error
    return True


def _check_address(address: str) -> None:
    """Knock at HOST:PORT first, as Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()


def _cause(error: Any) -> LandscapeError:
    """Return what was raised in a worker as one of our errors."""
    cause = getattr(error, "cause", None)
    return describe(cause if isinstance(cause, Exception) else error)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]
