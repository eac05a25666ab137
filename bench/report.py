"""The measurements as a table in Markdown, and as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.timing import Timing


@dataclass
class CaseReport:
    """What was measured of one case.

    Attributes:
        name: of the case.
        title: for the table.
        points: of a line.
        strategy: what the engine chose for the gradient line, and how many points together.
        gradient_line: timings by contender.
        loss_strategy: the same for the loss alone.
        loss_line: timings by contender.
        machine_share: share of the machine's FLOP/s, of the loop by hand and of the engine; above
            1 where the engine computes less than the model's own operations.
        products: timings of Hessian-vector products.
        missing: peers that were not timed, with the reason.
    """

    name: str
    title: str
    points: int
    strategy: str = ""
    gradient_line: dict[str, Timing] = field(default_factory=dict)
    loss_strategy: str = ""
    loss_line: dict[str, Timing] = field(default_factory=dict)
    machine_share: tuple[float, float] = (float("nan"), float("nan"))
    products: dict[str, Timing] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Growth:
    """The seconds a point when there is more of something."""

    case: str
    what: str
    factor: float
    timing: Timing


def gradient_table(reports: Iterable[CaseReport]) -> list[str]:
    """Return the table of gradient lines."""
    rows = [
        "| network | points | by hand, ms a point | engine, ms a point | times faster "
        "| share of the machine | strategy |",
        "|---|---|---|---|---|---|---|",
    ]
    for report in reports:
        hand, own = report.gradient_line["by hand"], report.gradient_line["landscape"]
        shares = " → ".join(f"{share:.0%}" for share in report.machine_share)
        cells = (
            report.title,
            report.points,
            _ms(hand),
            _ms(own),
            f"{own.ratio_of(hand):.3g}",
            shares,
            report.strategy,
        )
        rows.append(_row(cells))
    return rows


def loss_table(reports: Iterable[CaseReport]) -> list[str]:
    """Return the table of losses alone."""
    names = ("by hand", "loss-landscapes", "landscaper")
    rows = [
        _row(
            (
                "network",
                *(f"{n}, ms" for n in names),
                "engine, ms",
                "times faster than the best",
                "strategy",
            )
        ),
        _row(["---"] * (len(names) + 4)),
    ]
    for report in reports:
        timings = report.loss_line
        own = timings["landscape"]
        best = min((timings[n] for n in names if n in timings), key=lambda timing: timing.median)
        others = [_ms(timings[n]) if n in timings else "–" for n in names]
        rows.append(
            _row(
                (report.title, *others, _ms(own), f"{own.ratio_of(best):.3g}", report.loss_strategy)
            )
        )
    return rows


def product_table(reports: Iterable[CaseReport]) -> list[str]:
    """Return the table of Hessian-vector products, in gradients."""
    names = ("landscape", "PyHessian", "curvlinops")
    rows = [_row(("network", *(f"{name}, gradients" for name in names))), _row(["---"] * 4)]
    for report in reports:
        timings = report.products
        if timings:
            base = timings["gradient"]
            shares = [f"{base.ratio_of(timings[n]):.2g}" if n in timings else "–" for n in names]
            rows.append(_row((report.title, *shares)))
    return rows


def growth_table(growths: Iterable[Growth]) -> list[str]:
    """Return the table of growth."""
    rows = ["| network | what | times | ms a point |", "|---|---|---|---|"]
    return rows + [_row((g.case, g.what, f"{g.factor:.3g}", _ms(g.timing))) for g in growths]


def _ms(timing: Timing) -> str:
    low, high = timing.spread
    return f"{timing.median * 1e3:.3g} ({low * 1e3:.3g}–{high * 1e3:.3g})"


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"
