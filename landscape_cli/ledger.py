"""The units of a run while it goes on: in memory, in the journal, and folded into the file."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from landscape_cli import store
from landscape_cli.assembly import assemble
from landscape_cli.errors import SpecError, StoreError
from landscape_cli.journal import Journal
from landscape_cli.runs import Run
from landscape_cli.specs import PLACEMENT
from landscape_cli.units import UnitKey, UnitResult

FOLD_SECONDS = 10.0
"""How old the file on disk may be, next to its journal, while a run goes on."""
FOLD_SHARE = 0.05
"""Of the time of a run, what bringing the file up to date may take meanwhile."""


def check_target(target: Path, *, resume: bool, overwrite: bool) -> None:
    """Check that a run may be written to `target`.

    Raises:
        SpecError: If it exists and nothing was said about it, or its folder does not.
    """
    if resume and overwrite:
        raise SpecError("--resume and --overwrite exclude each other", hint="choose one")
    if not target.parent.is_dir():
        raise SpecError(
            "the folder of the output does not exist",
            seen=target.parent,
            hint=f"mkdir -p {target.parent}",
        )
    present = [path for path in (target, Journal.path_of(target)) if path.exists()]
    if present and not resume and not overwrite:
        raise SpecError(
            "the output exists already",
            seen=", ".join(map(str, present)),
            hint="--resume goes on with it, --overwrite replaces it",
        )


def find_complete(target: Path, header: Mapping[str, Any]) -> Run | None:
    """Return the run at `target` if it is complete and the one that the header plans.

    Raises:
        StoreError: If it is another run, or a partial one whose journal is gone.
    """
    if not target.exists() or Journal.path_of(target).exists():
        return None
    run = store.open_run(target)
    settings = json.loads(json.dumps(header["settings"]))
    differing = sorted(name for name in settings if settings[name] != run.settings.get(name))
    differing = [name for name in differing if name not in PLACEMENT]
    hashes = [checkpoint["sha256"] for checkpoint in header["checkpoints"]]
    if run.labels("checkpoint_sha256") != hashes:
        differing.append("the checkpoints' contents")
    if differing:
        raise StoreError(
            "the output holds another run",
            seen=f"{target} differs in {', '.join(differing)}",
            hint="give another -o, or --overwrite",
        )
    if not run.complete:
        raise StoreError(
            "the output is partial and its journal is gone",
            seen=Journal.path_of(target),
            hint="--overwrite measures it again",
        )
    return run


class Ledger:
    """Keeps finished units; where there is an output, on disk before the next one begins.

    On leaving, however that comes about, what is finished is folded into the file; the journal
    goes once the run is complete.

    Args:
        header: `Plan.to_header`.
        target: the output, or None to keep the run in memory.
        overwrite: whether what is there is replaced; otherwise it is gone on with.

    Attributes:
        units: what is finished; failures of an earlier attempt are left out, to be tried again.
    """

    def __init__(self, header: Mapping[str, Any], target: Path | None, *, overwrite: bool) -> None:
        self.header = dict(header)
        self.units: list[UnitResult] = []
        self._target = target
        self._overwrite = overwrite
        self._journal: Journal | None = None
        self._folded = time.monotonic()
        self._pause = FOLD_SECONDS
        self._discarded = False

    def __enter__(self) -> Ledger:
        if self._target is not None:
            self._journal = self._open(Journal.path_of(self._target))
            self.header = self._journal.header
        return self

    def _open(self, path: Path) -> Journal:
        if not path.exists():
            return Journal.create(path, self.header)
        if self._overwrite:
            return Journal.replace(path, self.header)
        journal, units = Journal.resume(path, self.header)
        self.units = [unit for unit in units if not unit.error]
        return journal

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know about the journal."""
        return tuple(self._journal.notices) if self._journal is not None else ()

    @property
    def finished(self) -> set[UnitKey]:
        """The keys of the units that need not be measured again."""
        return {unit.key for unit in self.units}

    def add(self, unit: UnitResult) -> None:
        """Keep a finished unit."""
        self.units.append(unit)
        if self._journal is not None:
            self._journal.append(unit)
            if time.monotonic() - self._folded > self._pause:
                self.fold()

    def fold(self) -> Run:
        """Return the run that the units make so far, and bring the file up to date with it."""
        started = time.monotonic()
        run = assemble(self.header, self.units)
        if self._target is not None:
            store.write(run, self._target)
            run.source = str(self._target)
            self._folded = time.monotonic()
            self._pause = max(FOLD_SECONDS, (self._folded - started) / FOLD_SHARE)
        return run

    def discard(self) -> None:
        """Leave nothing behind of a run in which nothing was measured; an older output stays."""
        self._discarded = True

    def __exit__(self, *exception: object) -> None:
        if self._journal is None:
            return
        done = self._discarded
        try:
            if not self._discarded:
                done = self.fold().complete
        finally:
            self._journal.close(remove=done)
