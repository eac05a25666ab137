"""Every error the tool reports on purpose: what was wrong, what was seen, what to try."""

from __future__ import annotations


class LandscapeError(Exception):
    """Root of the errors that a user can act upon.

    Args:
        what: what was wrong, one line without a full stop.
        seen: the offending value, or what was found instead.
        hint: what to try next.

    Attributes:
        exit_code: status of the process that ends on this error.
    """

    exit_code = 1

    def __init__(self, what: str, *, seen: object = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.seen = str(seen)
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.seen, self.hint)

    def lines(self) -> list[tuple[str, str]]:
        """Return the (label, text) pairs that have something to say."""
        pairs = [("error", self.what), ("seen", self.seen), ("try", self.hint)]
        return [(label, text) for label, text in pairs if text]

    def __str__(self) -> str:
        (_, what), *rest = self.lines()
        return "\n".join([what, *(f"  {label + ':':<6} {text}" for label, text in rest)])


class SpecError(LandscapeError):
    """Wrong usage: an option, a spec or a configuration that cannot be meant."""

    exit_code = 2


class AdapterError(LandscapeError):
    """A model, data set or loss that could not be built from its spec."""


class CheckpointError(LandscapeError):
    """A checkpoint that cannot be read, or does not fit its model."""


class MeasurementError(LandscapeError):
    """The objective cannot be evaluated, or a measure cannot be taken."""


class StoreError(LandscapeError):
    """A run file that cannot be read, written or continued."""


def _rebuild(kind: type[LandscapeError], what: str, seen: str, hint: str) -> LandscapeError:
    return kind(what, seen=seen, hint=hint)
