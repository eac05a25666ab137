"""``landscape doctor``: what would go wrong or be slow, before a probe is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from landscape_cli.cli import output
from landscape_cli.cli.configuration import merge_config
from landscape_cli.cli.options import takes
from landscape_cli.cli.probe_options import ProbeOptions

if TYPE_CHECKING:
    from landscape_cli.doctor import Diagnosis

SIGNS = {"good": "ok", "note": "note", "problem": "PROBLEM"}


@takes(ProbeOptions)
def doctor(ctx: typer.Context, options: ProbeOptions) -> None:
    """Say what would go wrong or be slow in a probe with these options, and what to change."""
    options = merge_config(options, options.config)
    ctx.obj.debug = bool(options.debug) or ctx.obj.debug
    from landscape_cli.doctor import examine

    settings = options.settings()
    paths, model, data = (settings.pop(name) for name in ("checkpoints", "model", "data"))
    with output.results_only():
        diagnosis = examine(paths, model=model, data=data, **settings)
    if options.json:
        output.write_json(diagnosis.to_dict())
        return
    _write(diagnosis)


def _write(diagnosis: Diagnosis) -> None:
    for finding in diagnosis.findings:
        output.write(f"{SIGNS[finding.level]:<8} {finding.subject + ':':<13} {finding.what}")
        if finding.advice:
            output.write(f"{'':<8} {'':<13} try: {finding.advice}")
    together = f", {diagnosis.chunk} points together" if diagnosis.chunk > 1 else ""
    output.write(f"\nstrategy  {diagnosis.strategy}{together}")
    output.write(f"a point   {diagnosis.seconds_per_point * 1e3:.3g} ms")
    output.write(f"weights   {diagnosis.parameters:,} numbers")
    for name, reason in diagnosis.refusals.items():
        output.write(f"not {name}: {reason}")
