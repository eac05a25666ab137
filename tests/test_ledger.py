"""How often the file of a run is brought up to date while the run goes on."""

from __future__ import annotations

from pathlib import Path

import journal_writer
import pytest

from landscape_cli import ledger
from landscape_cli.ledger import Ledger
from landscape_cli.runs import Run


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 10), (5.0, 1)])
def test_a_fold_that_takes_long_is_done_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, expected: int
) -> None:
    """With a unit a second for 110 seconds: every 10 seconds, or after 20 times what one took."""
    now, folds = 0.0, []

    def fold(header: object, units: object) -> Run:
        nonlocal now
        now += seconds
        folds.append(now)
        return journal_writer.fold([])

    monkeypatch.setattr(ledger.time, "monotonic", lambda: now)
    monkeypatch.setattr(ledger, "assemble", fold)
    with Ledger(journal_writer.HEADER, tmp_path / "run.h5", overwrite=False) as kept:
        for index in range(110):
            now += 1.0
            kept.add(journal_writer.unit(index % journal_writer.UNITS))
        assert len(folds) == expected
