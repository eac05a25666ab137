"""``python -m bench``: time the engine, and write the tables."""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import torch

from bench import breakdown, curvature, limits, memory, report
from bench.cases import CASES, Case
from bench.contestant import Entry
from bench.seat import Missing, Seat
from bench.timing import CLOCKS, Contender, Timing, interleave


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark that the arguments ask for."""
    options = _parse(arguments)
    torch.set_num_threads(options.threads)
    cases = [CASES[name] for name in options.cases]
    if options.points:
        cases = [replace(case, points=options.points) for case in cases]
    reports = [_measure(case, options) for case in cases]
    growths = [g for case in cases for g in _grow(case, options)] if options.growth else []
    peaks = memory.peaks() if options.memory else []
    broken_down = [
        breakdown.break_down(case, gradients=gradients)
        for case in (cases if options.breakdown else ())
        for gradients in (True, False)
    ]
    lines = _page(reports, growths, peaks, broken_down, options)
    print("\n".join(lines))
    if options.json:
        values = {"cases": [r.to_dict() for r in reports], "growth": [asdict(g) for g in growths]}
        options.json.write_text(json.dumps({**values, "memory": memory.to_dicts(peaks)}, indent=2))
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (7)")
    parser.add_argument("--points", type=int, help="points of a line, instead of each case's own")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall", help="wall or cpu time")
    parser.add_argument("--strategy", default="auto", help="force a strategy")
    parser.add_argument("--landscaper", metavar="PYTHON", help="an interpreter that has landscaper")
    parser.add_argument("--products", action="store_true", help="Hessian-vector products as well")
    parser.add_argument("--growth", action="store_true", help="more points, samples, parameters")
    parser.add_argument("--breakdown", action="store_true", help="where a point's time goes")
    parser.add_argument(
        "--memory", action="store_true", help="peak memory of 100 million parameters"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    return options


def _measure(case: Case, options: argparse.Namespace) -> report.CaseReport:
    print(f"… {case.title}", file=sys.stderr, flush=True)
    found = report.CaseReport(case.name, case.title, case.points)
    _gradient_line(case, options, found)
    _loss_line(case, options, found)
    if options.products:
        found.products, missing = curvature.time_products(case, options.rounds)
        found.missing.update(missing)
    return found


def _gradient_line(case: Case, options: argparse.Namespace, found: report.CaseReport) -> None:
    timings, remarks = _race(case, options, ("by hand", "landscape"), found)
    found.gradient_line = timings
    found.strategy = remarks["landscape"]
    work, peak = limits.flops_per_point(case), limits.peak_flops(case, options.clock)
    hand, own = (work / timings[name].median / peak for name in ("by hand", "landscape"))
    found.machine_share = (hand, own)


def _loss_line(case: Case, options: argparse.Namespace, found: report.CaseReport) -> None:
    names = ("by hand", "loss-landscapes", "landscaper", "landscape")
    found.loss_line, remarks = _race(case, options, names, found, gradients=False)
    found.loss_strategy = remarks["landscape"]


def _race(
    case: Case,
    options: argparse.Namespace,
    names: Sequence[str],
    found: report.CaseReport,
    *,
    gradients: bool = True,
) -> tuple[dict[str, Timing], dict[str, str]]:
    """Return the timings of contenders that take turns, and what they say of themselves."""
    with ExitStack() as stack:
        seats: dict[str, Seat] = {}
        for name in names:
            python = options.landscaper if name == "landscaper" else None
            entry = Entry(
                name,
                case.name,
                gradients,
                case.points,
                options.threads,
                options.clock,
                options.strategy,
            )
            try:
                seats[name] = stack.enter_context(Seat(entry, python))
            except Missing as missing:
                found.missing[name] = str(missing)
        contenders = {name: Contender(seat, case.points) for name, seat in seats.items()}
        timings = interleave(contenders, options.rounds, options.clock)
    return timings, {name: seat.remark for name, seat in seats.items()}


def _grow(case: Case, options: argparse.Namespace) -> list[report.Growth]:
    """Time the engine on the case, and on larger ones, in turn."""
    usual = Entry("landscape", case.name, True, case.points, options.threads, options.clock)
    share = case.scaled(wider=True).parameters / case.parameters
    larger = {
        ("–", 1.0): usual,
        ("points", 4.0): replace(usual, points=4 * case.points),
        ("samples", 4.0): replace(usual, batch=4),
        ("parameters", share): replace(usual, wider=True),
    }
    with ExitStack() as stack:
        contenders = {
            key: Contender(stack.enter_context(Seat(entry)), entry.points)
            for key, entry in larger.items()
        }
        timings = interleave(contenders, options.rounds, options.clock)
    return [report.Growth(case.title, what, times, t) for (what, times), t in timings.items()]


def _page(
    reports: list[report.CaseReport],
    growths: list[report.Growth],
    peaks: list[memory.Peak],
    broken_down: list[breakdown.Breakdown],
    options: argparse.Namespace,
) -> list[str]:
    machine = f"{platform.machine()}, {options.threads} threads, torch {torch.__version__}, float32"
    what = f"{options.rounds} interleaved rounds (fastest–slowest), {options.clock} time"
    lines = [f"Medians over {what}, {machine}.", ""]
    lines += ["## A line with gradients", "", *report.gradient_table(reports), ""]
    lines += ["## A line of losses", "", *report.loss_table(reports), ""]
    if options.products:
        lines += ["## A Hessian-vector product", "", *report.product_table(reports), ""]
    if growths:
        lines += ["## Growth", "", *report.growth_table(growths), ""]
    if peaks:
        title = (
            f"## Memory, in copies of θ beside the model's own ({peaks[0].parameters:,} parameters)"
        )
        lines += [title, "", *memory.table(peaks), ""]
    if broken_down:
        lines += ["## Where the time goes, ms a point", "", *breakdown.table(broken_down), ""]
    missing = {name: reason for r in reports for name, reason in r.missing.items()}
    lines += [f"Not timed: {name} ({reason})." for name, reason in missing.items()]
    command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
    return [*lines, "", f"Made with `{command}`."]


if __name__ == "__main__":
    main()
