"""Probing while a model trains: the run file of a trajectory, without its checkpoints."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from torch.utils.data import Dataset

from landscape_cli import batches, randomness, store
from landscape_cli.errors import LandscapeError, SpecError
from landscape_cli.probing import probe
from landscape_cli.record.joining import join, keep_before
from landscape_cli.record.measuring import measuring
from landscape_cli.record.weights import unwrap
from landscape_cli.runs import Run, Variable
from landscape_cli.specs import ProbeSpec

FILE_NAME = "run.h5"


class LiveProbe:
    """Measures the landscape at every step that a `Recorder` records.

    All steps are measured on the same batches, and the file is brought up to date after each, so
    that it can be looked at while training goes on. The training is what it would be without.

    Args:
        data: a spec, a `Dataset` or an iterable of batches, as in `landscape_cli.probe`.
        output: the HDF5 file; ``run.h5`` in the recorder's folder by default.
        keep_checkpoints: whether checkpoints are written as well.
        **settings: of the probe: ``loss``, ``steps``, ``directions``, ``measures``, …; the
            learning rate is the one of each step.

    Raises:
        SpecError: If a setting cannot be meant, or needs checkpoints that are not there yet.
    """

    def __init__(
        self,
        data: str | Dataset[Any] | Iterable[Any],
        *,
        output: str | Path | None = None,
        keep_checkpoints: bool = False,
        **settings: Any,
    ) -> None:
        for name in ("lr", "checkpoints", "model"):
            if name in settings:
                raise SpecError(
                    f"{name} of a live probe is the training's own", seen=name, hint="leave it out"
                )
        directions = settings.get("directions", ())
        listed = (directions,) if isinstance(directions, str) else directions
        if "update" in listed or "update" in str(settings.get("plane", "")):
            raise SpecError(
                "the next checkpoint is not there while a model trains",
                seen="update",
                hint="record checkpoints and probe them afterwards",
            )
        placeholders = {"checkpoints": ("-",), "model": "-", "data": "-"}
        tuples = {"directions": tuple(listed)} if listed else {}
        spec = ProbeSpec.from_mapping({**placeholders, **settings, **tuples})
        if spec.engine == "local" and spec.processes > 1:
            raise SpecError(
                "a live probe measures in the process that trains",
                seen=f"{spec.processes} workers",
                hint="one device, or record checkpoints and probe them afterwards",
            )
        self.keep_checkpoints = keep_checkpoints
        self.output = Path(output) if output is not None else None
        self._data = data
        self._settings = settings
        self._sample: batches.Sample | None = None
        self._run: Run | None = None

    @property
    def steps(self) -> list[int]:
        """The training steps that are measured."""
        return [] if self._run is None else [int(step) for step in self._run["training_step"]]

    def open(self, folder: Path) -> Path:
        """Return the file that the measurements go into, for a recording in `folder`."""
        if self.output is None:
            self.output = folder / FILE_NAME
        return self.output

    def resume(self) -> None:
        """Go on with what the file holds."""
        if self.output is not None and self.output.exists():
            self._run = store.open_run(self.output)

    def drop_from(self, step: int) -> None:
        """Forget what was measured from `step` on: training goes through it again."""
        if self._run is not None:
            self._run = keep_before(self._run, step)

    def measure(
        self, model: nn.Module, step: int, learning_rate: float | None, sha256: str
    ) -> Path:
        """Measure the model as it stands, and write the file with all steps so far.

        Raises:
            LandscapeError: If the first step cannot be measured. Later ones are left out with a
                warning: training is worth more than a point on a curve.
        """
        assert self.output is not None
        try:
            with randomness.preserved(), measuring():
                found = self._probe(unwrap(model), learning_rate)
        except LandscapeError as error:
            if self._run is None:
                raise
            warnings.warn(f"step {step} is not measured: {error}", RuntimeWarning, stacklevel=3)
            return self.output
        named = self._named(found, step, sha256)
        self._run = named if self._run is None else join([self._run, named])
        store.write(self._run, self.output)
        return self.output

    def _probe(self, model: nn.Module, learning_rate: float | None) -> Run:
        sample = self._drawn()
        return probe(
            model=model,
            data=list(sample.batches),
            lr=learning_rate,
            **{**self._settings, "batches": len(sample.batches)},
        )

    def _drawn(self) -> batches.Sample:
        """Return the batches, drawn once, so that every step is measured on the same."""
        if self._sample is None:
            data = _build_data(self._data) if isinstance(self._data, str) else self._data
            given = [self._settings.get(name) for name in ("batch_size", "batches", "seed")]
            defaults = (ProbeSpec.batch_size, ProbeSpec.batches, ProbeSpec.seed)
            size, count, seed = (
                default if value is None else value
                for value, default in zip(given, defaults, strict=True)
            )
            self._sample = batches.draw(data, size, count, seed)
        return self._sample

    def _named(self, run: Run, step: int, sha256: str) -> Run:
        """Return a run of one checkpoint with the step's name and number, and its provenance."""
        values = {
            "checkpoint": np.array([f"step-{step:06d}"], dtype=object),
            "training_step": np.array([step], dtype=np.int64),
            "checkpoint_sha256": np.array([sha256], dtype=object),
        }
        variables = dict(run.variables)
        for path, value in values.items():
            old = variables[path]
            variables[path] = Variable(old.dims, value, old.unit, old.meaning)
        settings = {**run.settings, "lr": None, "checkpoints": ["(recorded while training)"]}
        if isinstance(self._data, str):
            settings["data"] = self._data
        label = run.labels("checkpoint")[0]
        attributes = {
            **run.attributes,
            "settings": json.dumps(settings, sort_keys=True),
            "sample_indices_sha256": self._drawn().indices_hash(),
            "notices": _renamed(run, label, f"step-{step:06d}"),
        }
        return Run(variables, attributes, str(self.output))


def _renamed(run: Run, label: str, name: str) -> str:
    notices = json.loads(run.attributes.get("notices", "[]"))
    for notice in notices:
        notice["checkpoints"] = [name if w == label else w for w in notice["checkpoints"]]
    return json.dumps(notices)


def _build_data(spec: str) -> Any:
    from landscape_cli.adapters.building import build_data

    return build_data(spec)
