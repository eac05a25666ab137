"""The whole contract of a study, on one screen.

A study repeats one published figure or table. It trains and measures through a `Workbench`, and
says claim by claim what was published, what that would lead one to expect, and what was seen. A
claim that does not hold is a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from landscape_cli.figures.document import Section
    from landscape_cli.studies.workbench import Workbench

Preset = Literal["smoke", "laptop", "paper"]
"""``smoke``: seconds, for tests. ``laptop``: minutes on two cores. ``paper``: as published."""


@dataclass(frozen=True)
class Claim:
    """One published statement, held against what was seen.

    Attributes:
        claim: as published, in one sentence.
        source: paper, year, place.
        expected: what would be seen if it holds, decided before anything is measured.
        observed: what was seen: a number, with its interval over seeds.
        holds: None where what was seen decides nothing: too few seeds, or an interval on both
            sides of what was expected.
        interval: 95 % over seeds, of the number in `observed`.
        explanation: what is known of why; empty where nothing is.
    """

    claim: str
    source: str
    expected: str
    observed: str
    holds: bool | None
    interval: tuple[float, float] | None = None
    explanation: str = ""


@dataclass(frozen=True)
class Findings:
    """What a study found: its claims, and the sections of its report after their table."""

    claims: Sequence[Claim]
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()


class Study(Protocol):
    """A module of this package has one, as ``STUDY``; importing it must not load torch.

    Attributes:
        name: as on the command line; the module has it with ``_`` for ``-``.
        title: what it shows, one line.
        source: authors, year, figure or table.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def source(self) -> str: ...  # noqa: D102

    def run(self, bench: Workbench) -> Findings:
        """Train, probe and judge, in the size that ``bench.preset`` asks for."""
        ...


@dataclass(frozen=True)
class StudyResult:
    """What a reproduction left: the claims, and where report and runs are."""

    study: str
    preset: Preset
    folder: Path
    report: Path
    claims: tuple[Claim, ...]

    def summary(self) -> dict[str, Any]:
        """Return it as plain values: study, preset, report and claims."""
        names = ("claim", "source", "expected", "observed", "holds")
        claims = [{name: getattr(claim, name) for name in names} for claim in self.claims]
        head = {"study": self.study, "preset": self.preset, "report": str(self.report)}
        return {**head, "claims": claims}
