"""How a long measurement tells its caller where it is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of a run; every method may be called many times a second."""

    def start(self, points: int) -> None:
        """Begin a run of that many step points; resumed ones are advanced past at once."""
        ...

    def advance(self, points: int, where: str) -> None:
        """Say that so many more points are finished; `where` names checkpoint and direction."""
        ...

    def notice(self, text: str) -> None:
        """Say something that the user should know, one line."""
        ...


class Silent:
    """Progress that nobody watches."""

    def start(self, points: int) -> None:
        """Ignore it."""

    def advance(self, points: int, where: str) -> None:
        """Ignore it."""

    def notice(self, text: str) -> None:
        """Ignore it."""
