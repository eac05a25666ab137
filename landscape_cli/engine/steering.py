"""What a worker evaluates slices with: the run's choice, prepared sweeps, and revisions."""

from __future__ import annotations

from landscape_cli.engine.check import CheckedSweep
from landscape_cli.engine.choice import Choice, find_strategy
from landscape_cli.engine.plain import Plain
from landscape_cli.engine.strategy import Slice, Sweep
from landscape_cli.site import Site
from landscape_cli.units import RUN, UnitKey, UnitResult


class Steering:
    """Keeps to the choice of a run, and revises it where it proves wrong.

    Attributes:
        choice: strategy and chunk; None until one is made or adopted.
        told: what happened to the slices since it was last emptied, one line each.
    """

    def __init__(self) -> None:
        self.choice: Choice | None = None
        self.told: list[str] = []
        self._revision = 0
        self._pending: UnitResult | None = None
        self._prepared: tuple[object, Sweep] | None = None

    def adopt(self, choice: Choice, revision: int = 0) -> UnitResult:
        """Use a choice from here on, and return the unit that records it."""
        self.choice, self._revision = choice, revision
        self.forget()
        key = UnitKey(RUN, "choice", choice.strategy, revision, choice.chunk)
        return UnitResult(key, notices=(choice.reason,) if choice.reason else ())

    def forget(self) -> None:
        """Let go of the prepared sweep, whose direction or site is gone."""
        self._prepared = None

    def sweep(self, identity: object, site: Site, slice_: Slice) -> Sweep:
        """Return the sweep of a slice, the same one as long as `identity` is."""
        if self._prepared is None or self._prepared[0] != identity:
            self._prepared = None  # before the next takes its memory
            self._prepared = (identity, self._prepare(site, slice_))
        return self._prepared[1]

    def _prepare(self, site: Site, slice_: Slice) -> Sweep:
        choice = self.choice or Choice("plain")
        strategy = find_strategy(choice.strategy)
        if choice.strategy == "plain" or strategy.refusal(site, slice_):
            return Plain().prepare(site, slice_)
        return CheckedSweep(strategy, site, slice_, chunk=choice.chunk, tell=self.told.append)

    def revise(self) -> None:
        """Note that the sweep gave way to plain, or that its chunk did not fit the memory."""
        sweep = self._prepared[1] if self._prepared else None
        if not isinstance(sweep, CheckedSweep) or self.choice is None:
            return
        present = Choice("plain") if sweep.failed else Choice(self.choice.strategy, sweep.chunk)
        if (present.strategy, present.chunk) != (self.choice.strategy, self.choice.chunk):
            self._pending = self.adopt(present, self._revision + 1)

    def take_revision(self) -> UnitResult | None:
        """Return the unit of a choice that was revised, once."""
        pending, self._pending = self._pending, None
        return pending

    def take_told(self) -> tuple[str, ...]:
        """Return what there is to tell, once."""
        told, self.told[:] = tuple(self.told), []
        return told
