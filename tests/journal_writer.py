"""A writer that is to be killed: units worked out from their index, appended and folded."""

from __future__ import annotations

import numpy as np

from landscape_cli import store
from landscape_cli.journal import Journal
from landscape_cli.runs import Run, Variable
from landscape_cli.units import UnitKey, UnitResult

UNITS, POINTS = 24, 5
READY = "ready"
HEADER = {"settings": {"seed": 0}, "created": "now"}


def unit(index: int) -> UnitResult:
    """Return the unit of that index: the same numbers whoever measures it."""
    generator = np.random.default_rng(index)
    start = index * POINTS
    return UnitResult(
        UnitKey(0, "line", "gradient", start, start + POINTS),
        {"columns": generator.standard_normal((POINTS, 3)), "limit": np.float64(index)},
        notices=(f"unit {index}",),
    )


def fold(units: list[UnitResult]) -> Run:
    """Return the run that the units make."""
    columns = np.full((UNITS * POINTS, 3), np.nan)
    for one in units:
        columns[one.key.start : one.key.stop] = one.arrays["columns"]
    loss = Variable(("step", "column"), columns)
    return Run({"loss": loss}, {"status": "complete" if len(units) == UNITS else "partial"})


def measure(output: str, acknowledged: object) -> None:
    """Go on with the run until it is finished, sending the index of every unit that is on disk."""
    acknowledged.send(READY)
    path = Journal.path_of(output)
    if path.exists():
        journal, units = Journal.resume(path, HEADER)
    else:
        journal, units = Journal.create(path, HEADER), []
    done = {one.key for one in units}
    for index in range(UNITS):
        one = unit(index)
        if one.key in done:
            continue
        journal.append(one)
        acknowledged.send(index)
        units.append(one)
        if index % 3 == 0:
            store.write(fold(units), output)
    store.write(fold(units), output)
    journal.close()
    acknowledged.send(None)
