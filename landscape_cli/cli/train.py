"""``landscape train``: train a sample model and record its trajectory."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from landscape_cli.cli import output
from landscape_cli.cli.configuration import is_unset, merge_config
from landscape_cli.cli.options import OBJECTIVE, OUTPUT, PLACE, option, takes
from landscape_cli.cli.progress import watch
from landscape_cli.cli.usage import InterruptionError
from landscape_cli.errors import SpecError

if TYPE_CHECKING:
    from landscape_cli.training import TrainingResult

COURSE = "How it is trained"


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Every option of ``landscape train``; None, or empty, is what was not given."""

    model: Annotated[
        str | None,
        option("--model", "-m", metavar="SPEC", help="The model.", rich_help_panel=OBJECTIVE),
    ] = None
    data: Annotated[
        str | None,
        option("--data", "-d", metavar="SPEC", help="The data.", rich_help_panel=OBJECTIVE),
    ] = None
    test_data: Annotated[
        str | None,
        option(metavar="SPEC", help="Held-out data.", rich_help_panel=OBJECTIVE),
    ] = None
    loss: Annotated[
        str | None,
        option(
            metavar="NAME",
            help="As `probe` takes it.",
            unless="cross-entropy",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    steps: Annotated[
        int | None,
        option(metavar="N", help="Updates.", unless="500", rich_help_panel=COURSE),
    ] = None
    epochs: Annotated[
        int | None,
        option(metavar="N", help="Passes over the data, instead.", rich_help_panel=COURSE),
    ] = None
    batch_size: Annotated[
        int | None,
        option(metavar="N", help="Samples in a batch.", unless="128", rich_help_panel=COURSE),
    ] = None
    full_batch: Annotated[
        bool | None,
        option("--full-batch", help="All samples in every update.", rich_help_panel=COURSE),
    ] = None
    lr: Annotated[
        float | None,
        option(metavar="X", help="Step size.", unless="0.1", rich_help_panel=COURSE),
    ] = None
    optimizer: Annotated[
        str | None,
        option(
            metavar="NAME", help="sgd, adam, adamw or bnp.", unless="sgd", rich_help_panel=COURSE
        ),
    ] = None
    momentum: Annotated[
        float | None,
        option(metavar="X", help="Of sgd and bnp.", unless="0", rich_help_panel=COURSE),
    ] = None
    weight_decay: Annotated[
        float | None,
        option(metavar="X", help="Pull towards zero.", unless="0", rich_help_panel=COURSE),
    ] = None
    warmup_steps: Annotated[
        int | None,
        option(metavar="N", help="Steps of growing size.", unless="0", rich_help_panel=COURSE),
    ] = None
    warmup_start: Annotated[
        float | None,
        option(
            metavar="X", help="Share of --lr to grow from.", unless="0.1", rich_help_panel=COURSE
        ),
    ] = None
    decay_at: Annotated[
        list[int] | None,
        option(
            metavar="STEP",
            help="Multiply the step size there; can be repeated.",
            rich_help_panel=COURSE,
        ),
    ] = None
    decay_factor: Annotated[
        float | None,
        option(metavar="X", help="By what.", unless="0.1", rich_help_panel=COURSE),
    ] = None
    seed: Annotated[
        int | None,
        option(
            metavar="N",
            help="Decides weights, order and dropout.",
            unless="0",
            rich_help_panel=COURSE,
        ),
    ] = None
    every: Annotated[
        int | None,
        option(
            metavar="N",
            help="Record every so many steps.",
            unless="a twentieth of them",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    at: Annotated[
        list[int] | None,
        option(metavar="STEP", help="Record there; can be repeated.", rich_help_panel=OUTPUT),
    ] = None
    schedule: Annotated[
        str | None,
        option(metavar="log|log:N", help="Record in growing distances.", rich_help_panel=OUTPUT),
    ] = None
    device: Annotated[
        str | None,
        option(metavar="NAME", help="Where.", unless="auto", rich_help_panel=PLACE),
    ] = None
    dtype: Annotated[
        str | None,
        option(metavar="TYPE", help="Of the weights.", unless="float32", rich_help_panel=PLACE),
    ] = None
    output: Annotated[
        str | None,
        option(
            "--out",
            "-o",
            metavar="DIR",
            help="The folder for the checkpoints.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    config: Annotated[
        str | None,
        option(
            metavar="FILE.toml",
            help="Read any of these options from a file; the command line wins.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    overwrite: Annotated[
        bool | None,
        option("--overwrite", help="Replace a recording.", rich_help_panel=OUTPUT),
    ] = None
    json: Annotated[
        bool | None, option("--json", help="The result as JSON.", rich_help_panel=OUTPUT)
    ] = None
    quiet: Annotated[
        bool | None,
        option("--quiet", "-q", help="No progress and no messages.", rich_help_panel=OUTPUT),
    ] = None
    debug: Annotated[
        bool | None,
        option("--debug", help="Show the traceback of an error.", rich_help_panel=OUTPUT),
    ] = None

    def settings(self) -> dict[str, Any]:
        """Return what was given of the fields of `TrainingSpec`."""
        left_out = ("output", "config", "overwrite", "json", "quiet", "debug")
        given = {name: value for name, value in asdict(self).items() if not is_unset(value)}
        return {name: value for name, value in given.items() if name not in left_out}


@takes(TrainOptions)
def train(ctx: typer.Context, options: TrainOptions) -> None:
    """Train a model and record a trajectory of checkpoints."""
    options = merge_config(options, options.config)
    ctx.obj.debug = bool(options.debug) or ctx.obj.debug
    for name, value in (
        ("--model", options.model),
        ("--data", options.data),
        ("--out", options.output),
    ):
        if not value:
            raise SpecError(
                f"a training needs {name}",
                seen="(nothing)",
                hint="landscape train --model SPEC --data SPEC --out DIR",
            )
    _render(_train(options), options)


def _train(options: TrainOptions) -> TrainingResult:
    from landscape_cli.training import train as run

    settings = options.settings()
    model, data = settings.pop("model"), settings.pop("data")
    try:
        with watch(quiet=bool(options.quiet), unit="steps") as progress, output.results_only():
            return run(
                model,
                data,
                out=str(options.output),
                overwrite=bool(options.overwrite),
                progress=progress,
                **settings,
            )
    except KeyboardInterrupt:
        raise InterruptionError(
            seen=f"the checkpoints so far are kept in {options.output}",
            hint="landscape probe takes them as they are, --overwrite starts again",
        ) from None


def _render(result: TrainingResult, options: TrainOptions) -> None:
    last = {
        name: float(column[-1])
        for name, column in result.history.items()
        if name not in ("step", "test_loss", "test_accuracy") and len(column)
    }
    if options.json:
        score = None if result.score is None else asdict(result.score)
        output.write_json(
            {
                "folder": str(result.folder),
                "checkpoints": [str(path) for path in result.checkpoints],
                "steps": result.steps,
                "last": last,
                "diverged_at": result.diverged_at,
                "score": score,
                "wall_seconds": result.wall_seconds,
            }
        )
        return
    numbers = ", ".join(f"{name} {output.number(value)}" for name, value in last.items())
    output.write(f"{result.steps} steps in {result.wall_seconds:.1f} s: {numbers}")
    if result.score is not None:
        held_out = asdict(result.score).items()
        output.write("held out: " + ", ".join(f"{name} {value}" for name, value in held_out))
    output.write(f"{len(result.checkpoints)} checkpoints in {result.folder}")
    folder = shlex.quote(str(result.folder))
    specs = shlex.join(["--model", str(options.model), "--data", str(options.data)])
    loss = shlex.join(["--loss", options.loss]) + " " if options.loss else ""
    output.say(f"next: landscape probe {folder} {specs} {loss}-o run.h5", quiet=bool(options.quiet))
