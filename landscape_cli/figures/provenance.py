"""Where the numbers of runs come from, and what to doubt about them, as tables and lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from landscape_cli.figures.document import Cell, Table
from landscape_cli.runs import MEASURED, NOT_MEASURED, Run

MOST_HASHES = 6
GROUP = "effective_smoothness"


def provenance_tables(runs: Sequence[Run], labels: Sequence[str]) -> list[Table]:
    """Return one table per run: source, command, settings, versions, hashes."""
    return [Table((label, "value"), _rows(run)) for run, label in zip(runs, labels, strict=True)]


def _rows(run: Run) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = [("file", run.source or "in memory")]
    leading = ("status", "command", "created", "device", "strategy")
    names = [name for name in leading if name in run.attributes]
    names += sorted(name for name in run.attributes if name not in {*leading, "notices"})
    for name in names:
        rows.extend(_flattened(name, run.attributes[name]))
    rows.extend(_hashes(run))
    return rows


def _flattened(name: str, value: Any) -> list[tuple[str, str]]:
    """Return one row per entry of a JSON object, one row otherwise."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str) and value.startswith("{"):
        try:
            entries = json.loads(value)
        except json.JSONDecodeError:
            return [(name, value)]
        return [(f"{name}: {key}", _text(entries[key])) for key in sorted(entries)]
    return [(name, _text(value))]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _hashes(run: Run) -> list[tuple[str, str]]:
    if "checkpoint_sha256" not in run:
        return []
    pairs = list(zip(run.labels("checkpoint"), run["checkpoint_sha256"], strict=True))
    rows = [(f"sha256 of {label}", str(value)) for label, value in pairs[:MOST_HASHES]]
    if len(pairs) > MOST_HASHES:
        rows.append(("sha256 of the others", f"{len(pairs) - MOST_HASHES} more, in the file"))
    return rows


SUMMARY_COLUMNS = (
    "run",
    "checkpoints",
    "points",
    "base loss",
    "loss range",
    "gradient change",
    "β*",
    "limit",
    "β*·lr",
    "saturated",
)


def summary_table(runs: Sequence[Run], labels: Sequence[str], direction: str) -> Table:
    """Return medians over the checkpoints along one direction, a row per run that has it."""
    rows = [
        _summary(run, label, run.labels("direction").index(direction))
        for run, label in zip(runs, labels, strict=True)
        if direction in run.labels("direction")
    ]
    caption = (
        f"Along {direction}; medians over the checkpoints, finite values only. "
        "Loss range: largest less smallest loss over the steps. Gradient change: the largest. "
        "Saturated: checkpoints where β* reflects the step grid rather than the network."
    )
    return Table(SUMMARY_COLUMNS, rows, caption)


def _summary(run: Run, label: str, direction: int) -> list[Cell]:
    status = run["status"][:, direction]
    saturated = int((run[f"{GROUP}/saturated"][:, direction] > 0).sum())
    return [
        label,
        len(run["checkpoint"]),
        int((status != NOT_MEASURED).sum()),
        _median(run["base_loss"]),
        _median((run["loss_range/maximum"] - run["loss_range/minimum"])[:, direction]),
        _median(run["gradient_predictiveness/maximum"][:, direction]),
        *(_median(run[f"{GROUP}/{name}"][:, direction]) for name in ("beta", "limit")),
        _median(run[f"{GROUP}/beta_times_lr"][:, direction]),
        f"{saturated} of {len(status)}",
    ]


def _median(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else float("nan")


def remarks(runs: Sequence[Run], labels: Sequence[str]) -> list[str]:
    """Return what a reader should know before reading on: gaps, infinities, saturation, notices."""
    texts: list[str] = []
    for run, label in zip(runs, labels, strict=True):
        texts.extend(f"{label}: {text}" for text in [*_remarks(run), *_notices(run)])
    return texts


def notices(runs: Sequence[Run], labels: Sequence[str]) -> list[str]:
    """Return what was noted while the runs were measured."""
    return [
        f"{label}: {text}"
        for run, label in zip(runs, labels, strict=True)
        for text in _notices(run)
    ]


def _remarks(run: Run) -> list[str]:
    status = run["status"]
    texts = []
    missing = int((status == NOT_MEASURED).sum())
    if missing or not run.complete:
        texts.append(f"partial, {missing:,} of {status.size:,} points are not measured")
    bad = int((status > MEASURED).sum())
    if bad:
        texts.append(
            f"{bad:,} of {status.size:,} points are not finite; ranges and maxima are over the rest"
        )
    saturated = run[f"{GROUP}/saturated"] > 0
    if saturated.any():
        texts.append(
            f"β* is saturated in {int(saturated.sum())} of {saturated.size} lines: it reflects the "
            "smallest step (about 1/a) there; look at the limit instead"
        )
    if "below_noise_floor" in run and run["below_noise_floor"].any():
        below = int((run["below_noise_floor"] > 0).sum())
        texts.append(f"{below:,} of {status.size:,} gradient changes are within the noise floor")
    return texts


def _notices(run: Run) -> list[str]:
    try:
        notices = json.loads(run.attributes.get("notices", "[]"))
    except json.JSONDecodeError:
        return []
    texts = []
    for notice in notices:
        where = [str(label) for label in notice.get("checkpoints", []) if label]
        at = f" (at {where[0]}" + (f" and {len(where) - 1} more)" if len(where) > 1 else ")")
        texts.append(f"{notice.get('text', '')}{at if where else ''}")
    return texts
