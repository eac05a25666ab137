"""Runs put together along their checkpoints, as if they had been probed as one trajectory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from landscape_cli.errors import StoreError
from landscape_cli.runs import Run, Variable

CHECKPOINT = "checkpoint"


def join(runs: Sequence[Run]) -> Run:
    """Return one run with the checkpoints of all, in their order.

    What a measure could not give at one of them is NaN there, 0 or empty. The attributes are the
    last run's, but for notices and strategies, which are those of all.

    Args:
        runs: at least one, with the same directions, steps, layers and so on.

    Raises:
        StoreError: If they differ in more than their checkpoints.
    """
    paths = dict.fromkeys(path for run in runs for path in run)
    variables = {path: _joined(path, runs) for path in paths}
    last = runs[-1]
    attributes = {**last.attributes, "notices": _notices(runs), "strategy": _strategies(runs)}
    complete = all(run.complete for run in runs)
    attributes["status"] = "complete" if complete else "partial"
    return Run(variables, attributes, last.source)


def keep_before(run: Run, step: int) -> Run | None:
    """Return the run without the checkpoints from training step `step` on; None if none is left."""
    kept = run["training_step"] < step
    if not kept.any():
        return None
    variables = {
        path: Variable(v.dims, v.values[kept], v.unit, v.meaning) if _along(v) else v
        for path, v in run.variables.items()
    }
    return Run(variables, dict(run.attributes), run.source)


def _along(variable: Variable) -> bool:
    return variable.dims[:1] == (CHECKPOINT,)


def _joined(path: str, runs: Sequence[Run]) -> Variable:
    present = [run.variables[path] for run in runs if path in run]
    example = present[0]
    same = all(v.dims == example.dims and v.values.dtype == example.values.dtype for v in present)
    if not same or any(_rest(v) != _rest(example) for v in present):
        raise _difference(path)
    if not _along(example):
        if any(not _equal(v.values, example.values) for v in present):
            raise _difference(path)
        return example
    parts = [
        run.variables[path].values if path in run else _blank(example, len(run[CHECKPOINT]))
        for run in runs
    ]
    return Variable(example.dims, np.concatenate(parts), example.unit, example.meaning)


def _rest(variable: Variable) -> tuple[int, ...]:
    """Return the shape behind the checkpoint axis."""
    return variable.values.shape[1:] if _along(variable) else variable.values.shape


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


def _blank(example: Variable, count: int) -> np.ndarray:
    fill: Any = {"f": np.nan, "O": ""}.get(example.values.dtype.kind, 0)
    return np.full((count, *_rest(example)), fill, dtype=example.values.dtype)


def _difference(path: str) -> StoreError:
    return StoreError(
        "the runs differ in more than their checkpoints",
        seen=path,
        hint="probe all of a trajectory with the same settings",
    )


def _notices(runs: Sequence[Run]) -> str:
    gathered: dict[str, list[str]] = {}
    for run in runs:
        for notice in json.loads(run.attributes.get("notices", "[]")):
            gathered.setdefault(notice["text"], []).extend(notice["checkpoints"])
    return json.dumps([{"text": text, "checkpoints": where} for text, where in gathered.items()])


def _strategies(runs: Sequence[Run]) -> str:
    names = [name for run in runs for name in str(run.attributes.get("strategy", "")).split(", ")]
    return ", ".join(dict.fromkeys(filter(None, names)))
