"""What a run found, line by line: for the terminal, and for machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from landscape_cli.cli.output import number, write, write_table
from landscape_cli.runs import MEASURED, NOT_MEASURED, Run

COLUMNS = ("checkpoint", "direction", "loss", "loss range", "max ‖Δg‖", "β*", "limit", "β*·lr")
SHOWN = 24
"""Lines of a table before its middle is left out."""

MARKS = {
    "saturated": (
        "†",
        "saturated: ‖Δg‖ is half of ‖g‖ or more there, and β* about 1/a of the step grid",
    ),
    "at_smallest_step": ("*", "largest at the smallest step: smaller steps may give more"),
    "below_noise_floor": ("~", "within the noise floor: nothing but rounding may be seen"),
    "not_finite": ("!", "some points are not finite: the ranges are over the others"),
    "not_measured": ("…", "some points are not measured"),
}
"""What is to be doubted in a line, its mark and its meaning."""


def summarise(run: Run) -> dict[str, Any]:
    """Return the summary of a run as plain values."""
    attributes = run.attributes
    return {
        "path": run.source,
        "status": attributes.get("status", ""),
        "device": attributes.get("device", ""),
        "strategy": attributes.get("strategy", ""),
        "steps": [float(multiple) for multiple in run["step_multiple"]],
        "checkpoints": [
            {
                "checkpoint": label,
                "training_step": int(run["training_step"][index]),
                "learning_rate": float(run["learning_rate"][index]),
                "base_loss": float(run["base_loss"][index]),
                "gradient_norm": float(run["gradient_norm"][index]),
                "noise_floor": float(run["noise_floor"][index]),
                "directions": [
                    {"direction": name, **describe_line(run, index, position)}
                    for position, name in enumerate(run.labels("direction"))
                ],
            }
            for index, label in enumerate(run.labels("checkpoint"))
        ],
        "notices": read_notices(run),
    }


def describe_line(run: Run, checkpoint: int, direction: int) -> dict[str, Any]:
    """Return the numbers of one checkpoint along one direction, and what to doubt in them."""
    place = (checkpoint, direction)
    status = run["status"][place]
    change = run["gradient_predictiveness/maximum"][place]
    return {
        "loss_minimum": float(run["loss_range/minimum"][place]),
        "loss_maximum": float(run["loss_range/maximum"][place]),
        "gradient_change_minimum": float(run["gradient_predictiveness/minimum"][place]),
        "gradient_change_maximum": float(change),
        "beta": float(run["effective_smoothness/beta"][place]),
        "step_multiple_at_beta": float(run["effective_smoothness/step_multiple_at_beta"][place]),
        "limit": float(run["effective_smoothness/limit"][place]),
        "beta_times_lr": float(run["effective_smoothness/beta_times_lr"][place]),
        "at_smallest_step": bool(run["effective_smoothness/at_smallest_step"][place]),
        "saturated": bool(run["effective_smoothness/saturated"][place]),
        "below_noise_floor": bool(change <= run["noise_floor"][checkpoint]),
        "measured": int(np.sum(status >= MEASURED)),
        "not_measured": int(np.sum(status == NOT_MEASURED)),
        "not_finite": int(np.sum(status > MEASURED)),
    }


def read_notices(run: Run) -> list[str]:
    """Return what the run noted, one line each, with the checkpoints where it was noted."""
    import json

    try:
        notices = json.loads(run.attributes.get("notices", "[]"))
    except (TypeError, ValueError):
        return []
    return [_notice(item) for item in notices if isinstance(item, dict) and "text" in item]


def _notice(item: dict[str, Any]) -> str:
    where = list(dict.fromkeys(filter(None, item.get("checkpoints") or ())))
    names = ", ".join(map(str, where[:3])) + (f" and {len(where) - 3} more" if where[3:] else "")
    text = " ".join(str(item["text"]).split())
    return f"{names}: {text}" if names else text


def write_summary(summary: dict[str, Any], *, every_line: bool = False) -> None:
    """Write the table of a summary, the marks in it explained."""
    rows = [
        (_row(checkpoint, line), line)
        for checkpoint in summary["checkpoints"]
        for line in checkpoint["directions"]
    ]
    shown = rows if every_line else shorten(rows)
    left_out = len(rows) - len(shown)
    cells = [row for row, _ in shown]
    if left_out:
        middle = (f"… {left_out} more", *[""] * (len(COLUMNS) - 1))
        cells.insert(SHOWN // 2, middle)
    write_table(COLUMNS, cells, left=2)
    for name, (mark, meaning) in MARKS.items():
        if any(line[name] for _, line in shown):
            write(f"{mark} {meaning}")
    floors = [checkpoint["noise_floor"] for checkpoint in summary["checkpoints"]]
    finite = [floor for floor in floors if math.isfinite(floor)]
    if finite:
        write(f"noise floor of ‖Δg‖: {_span(min(finite), max(finite))}")


def shorten(rows: Sequence[Any]) -> list[Any]:
    """Return the first and the last of many rows."""
    half = SHOWN // 2
    return list(rows) if len(rows) <= SHOWN else [*rows[:half], *rows[-half:]]


def _row(checkpoint: dict[str, Any], line: dict[str, Any]) -> tuple[str, ...]:
    marks = "".join(mark for name, (mark, _) in MARKS.items() if line[name])
    return (
        checkpoint["checkpoint"],
        line["direction"],
        number(checkpoint["base_loss"]),
        _span(line["loss_minimum"], line["loss_maximum"]),
        number(line["gradient_change_maximum"]),
        f"{number(line['beta'])}{marks}",
        number(line["limit"]),
        number(line["beta_times_lr"], 3),
    )


def _span(low: float, high: float) -> str:
    same = number(low) == number(high)
    return number(low) if same else f"{number(low)} to {number(high)}"
