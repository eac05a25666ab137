"""``landscape probe``: measure one checkpoint, or a trajectory."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import typer

from landscape_cli.cli import output
from landscape_cli.cli.configuration import merge_config
from landscape_cli.cli.options import takes
from landscape_cli.cli.probe_options import ProbeOptions
from landscape_cli.cli.progress import watch
from landscape_cli.cli.usage import InterruptionError, UnfinishedError
from landscape_cli.errors import SpecError

if TYPE_CHECKING:
    from landscape_cli.runs import Run


@takes(ProbeOptions)
def probe(ctx: typer.Context, options: ProbeOptions) -> None:
    """Measure the landscape around one or several checkpoints."""
    options = merge_config(options, options.config)
    ctx.obj.debug = bool(options.debug) or ctx.obj.debug
    settings = options.settings()
    _check(settings)
    run = _measure(options, settings)
    _render(run, options)
    if not run.complete:
        raise _unfinished(run, options)


def _check(settings: dict[str, Any]) -> None:
    """Refuse what cannot be meant before anything heavy is imported."""
    from landscape_cli.specs import ProbeSpec

    ProbeSpec.from_mapping(settings)


def _measure(options: ProbeOptions, settings: dict[str, Any]) -> Run:
    quiet = bool(options.quiet)
    if options.resume and options.overwrite:
        raise SpecError(
            "--resume and --overwrite exclude each other",
            seen="--resume --overwrite",
            hint="choose one",
        )
    from landscape_cli.probing import probe as measure

    paths, model, data = (settings.pop(name) for name in ("checkpoints", "model", "data"))
    try:
        with watch(quiet=quiet) as progress, output.results_only():
            return measure(
                paths,
                model=model,
                data=data,
                output=options.output,
                resume=bool(options.resume),
                overwrite=bool(options.overwrite),
                progress=progress,
                **settings,
            )
    except KeyboardInterrupt:
        raise _interrupted(options) from None


def _interrupted(options: ProbeOptions) -> InterruptionError:
    if options.output is None:
        return InterruptionError(seen="nothing was kept", hint="-o RUN.h5 keeps what was measured")
    return InterruptionError(
        seen=f"what was measured is kept in {options.output}",
        hint="the same command with --resume goes on",
    )


def _unfinished(run: Run, options: ProbeOptions) -> UnfinishedError:
    from landscape_cli.cli.summary import read_notices

    failures = [notice for notice in read_notices(run) if notice]
    return UnfinishedError(
        "not everything could be measured",
        seen=failures[-1] if failures else f"status {run.attributes.get('status')}",
        hint="the same command with --resume tries again"
        if options.output
        else "landscape inspect CHECKPOINT",
    )


def _render(run: Run, options: ProbeOptions) -> None:
    from landscape_cli.cli.summary import summarise, write_summary

    summary = summarise(run)
    if options.json:
        output.write_json(summary)
        return
    write_summary(summary)
    if options.output is None:
        output.say("nothing was written: -o RUN.h5 keeps it", quiet=bool(options.quiet))
    else:
        name = shlex.quote(options.output)
        report = shlex.quote(options.output.removesuffix(".h5") + ".html")
        output.say(f"next: landscape plot {name} -o {report}", quiet=bool(options.quiet))
