"""Hold runs against each other: align, take ratios, say with an interval what differs."""

from __future__ import annotations

import sys
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING

from landscape_cli.compare.alignment import ALIGNMENTS, Align, Alignment, align_runs
from landscape_cli.compare.comparison import Comparison, Contrast, Pairing
from landscape_cli.compare.quantities import QUANTITIES, Blemishes, Quantity
from landscape_cli.compare.settings import Difference, find_differences
from landscape_cli.compare.verdict import (
    ONE_RUN_EACH,
    OVER_CHECKPOINTS,
    OVER_RUNS,
    Sides,
    contrast_sides,
)
from landscape_cli.errors import SpecError
from landscape_cli.runs import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ALIGNMENTS",
    "QUANTITIES",
    "Align",
    "Alignment",
    "Blemishes",
    "Comparison",
    "Contrast",
    "Difference",
    "Pairing",
    "Quantity",
    "compare",
]


def compare(
    *runs: Run | str | Path,
    labels: Sequence[str] | None = None,
    align: Align = "step",
    output: str | Path | None = None,
) -> Comparison:
    """Hold runs against the first one, and say with an interval which is lower.

    For the loss range, the largest gradient change, β*, its limit ‖Hd‖/‖d‖ and β*·lr, along every
    direction in common: medians, the geometric mean of the pointwise ratios, and an interval for
    it. Values that are not finite and positive are left out in pairs and counted.

    Args:
        runs: two or more, in memory or as files.
        labels: one per run; runs that share a label are repeats (seeds) of one thing, and
            intervals are then over runs. Default: the files' names, made different.
        align: ``step``, or ``loss``: a run that trains faster looks smoother merely because its
            loss is lower.
        output: where to write an HTML report.

    Returns:
        Every further label against the first.

    Raises:
        SpecError: If there are not two labels, or the runs have no direction, training step or
            loss in common.
        StoreError: If a file cannot be read or the report cannot be written.

    Reference:
        Santurkar et al. (2018), §3.2.
    """
    opened = [_open(run) for run in runs]
    names = name_runs(opened, labels)
    groups = {
        name: tuple(r for n, r in zip(names, opened, strict=False) if n == name) for name in names
    }
    if len(groups) < 2:
        raise SpecError(
            "a comparison needs two labels",
            seen=f"{len(opened)} run(s), label(s): {', '.join(groups) or '(none)'}",
            hint="landscape compare A.h5 B.h5 --label A --label B",
        )
    first, *others = groups.items()
    pairings = tuple(_pair(first, other, align) for other in others)
    comparison = Comparison(align, tuple(groups), pairings, groups)
    if output is not None:
        from landscape_cli.figures import compared

        compared.build_report(comparison).write(output)
    return comparison


def name_runs(runs: Sequence[Run], labels: Sequence[str] | None = None) -> list[str]:
    """Return one label per run: as given, or the files' names with as many folders as it takes.

    Raises:
        SpecError: If the number of labels is not that of the runs, or a label is empty.
    """
    if labels:
        if len(labels) != len(runs) or not all(str(label).strip() for label in labels):
            raise SpecError(
                "there is not one label per run",
                seen=f"{len(labels)} labels for {len(runs)} runs",
                hint="--label once for every run, in their order",
            )
        return [str(label) for label in labels]
    paths = [PurePath(run.source.replace("\\", "/").removesuffix(".h5") or "run") for run in runs]
    for depth in range(1, max((len(path.parts) for path in paths), default=1) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path.name} ({index})" for index, path in enumerate(paths, start=1)]


def _open(run: Run | str | Path) -> Run:
    if isinstance(run, Run):
        return run
    from landscape_cli.store import open_run

    return open_run(run)


def _pair(
    first: tuple[str, tuple[Run, ...]], other: tuple[str, tuple[Run, ...]], by: str
) -> Pairing:
    runs = [*first[1], *other[1]]
    directions = _common_directions(runs)
    alignment = align_runs(runs, by)
    sides = Sides(first, other, alignment)
    blemishes = {direction: sides.blemishes(direction) for direction in directions}
    return Pairing(
        first=first[0],
        other=other[0],
        alignment=alignment,
        contrasts=tuple(
            contrast_sides(sides, quantity, direction, blemishes[direction])
            for direction in directions
            for quantity in QUANTITIES
        ),
        differences=find_differences(first[1], other[1]),
        blemishes=blemishes,
        method=OVER_RUNS if sides.repeated else OVER_CHECKPOINTS,
        warnings=tuple(_warnings(sides, directions)),
    )


def _common_directions(runs: Sequence[Run]) -> list[str]:
    common = [
        label
        for label in runs[0].labels("direction")
        if all(label in run.labels("direction") for run in runs)
    ]
    if not common:
        seen = "; ".join(", ".join(run.labels("direction")) for run in runs)
        raise SpecError(
            "the runs have no direction in common", seen=seen, hint="probe both with --direction"
        )
    return common


def _warnings(sides: Sides, directions: Sequence[str]) -> list[str]:
    texts = [] if sides.repeated else [ONE_RUN_EACH]
    alone = {label for run in sides.runs for label in run.labels("direction")} - set(directions)
    if alone:
        names = ", ".join(sorted(alone))
        texts.append(f"directions that are not in all runs are left out: {names}")
    texts.extend(
        f"{run.label} is partial: part of it was not measured"
        for run in sides.runs
        if not run.complete
    )
    return texts


class _CallableModule(ModuleType):
    """``landscape_cli.compare(...)`` works, though importing this module takes that name for it."""

    def __call__(
        self,
        *runs: Run | str | Path,
        labels: Sequence[str] | None = None,
        align: Align = "step",
        output: str | Path | None = None,
    ) -> Comparison:
        return compare(*runs, labels=labels, align=align, output=output)


sys.modules[__name__].__class__ = _CallableModule
