"""``landscape verify``: measure random points of a run again and compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from landscape_cli.cli import output
from landscape_cli.cli.options import Debug, Json, Quiet, option, takes
from landscape_cli.cli.progress import watch
from landscape_cli.cli.usage import InterruptionError
from landscape_cli.errors import MeasurementError

if TYPE_CHECKING:
    from landscape_cli.verify import Verification

NAMED = "To take instead of the one that the run names."
SHOWN = 60
"""Characters of a recorded hash or name that are shown."""


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Every option of ``landscape verify``."""

    run: Annotated[str, typer.Argument(metavar="RUN.h5", help="A file that `probe` wrote.")]
    points: Annotated[int, typer.Option(metavar="N", help="How many points to measure again.")] = 8
    seed: Annotated[int, typer.Option(metavar="N", help="Decides which points.")] = 0
    model: Annotated[str, option("--model", "-m", metavar="SPEC", help=NAMED)] = ""
    data: Annotated[str, option("--data", "-d", metavar="SPEC", help=NAMED)] = ""
    loss: Annotated[str, option("--loss", metavar="NAME", help=NAMED)] = ""
    json: Json = False
    quiet: Quiet = False
    debug: Debug = False


@takes(VerifyOptions)
def verify(options: VerifyOptions) -> None:
    """Measure random points of a run again; exit with 0 if they agree, with 1 if they do not."""
    from landscape_cli.verify import verify as measure_again

    named = {name: getattr(options, name) for name in ("model", "data", "loss")}
    try:
        with watch(quiet=options.quiet) as progress, output.results_only():
            verification = measure_again(
                options.run,
                points=options.points,
                seed=options.seed,
                named=named,
                progress=progress,
            )
    except KeyboardInterrupt:
        raise InterruptionError(seen="the run is as it was", hint="a smaller --points") from None
    if options.json:
        output.write_json(verification.to_dict())
    else:
        _write(verification)
    if not verification.agrees:
        raise _disagreement(verification)


def _write(verification: Verification) -> None:
    columns = ("checkpoint", "direction", "quantity", "step", "recorded", "measured", "agrees")
    rows = [
        (
            *(reading.checkpoint, reading.direction, reading.quantity),
            *(output.number(reading.step_multiple), output.number(reading.recorded, 10)),
            *(output.number(reading.measured, 10), "yes" if reading.agrees else "NO"),
        )
        for reading in verification.readings
    ]
    output.write_table(columns, rows, left=3)
    for difference in verification.differences:
        was, now = difference.recorded[:SHOWN], difference.present[:SHOWN]
        output.write(f"{difference.what} differs: was {was or '(unknown)'}, is {now}")
    agreeing = len(verification.readings) - len(verification.disagreeing)
    verdict = "agree" if verification.agrees else "do not all agree"
    output.write(
        f"{verification.points} points {verdict}: {agreeing} of {len(verification.readings)} "
        f"numbers within {verification.relative:g} of themselves and the noise floor"
    )


def _disagreement(verification: Verification) -> MeasurementError:
    worst = verification.disagreeing[0]
    named = ", ".join(difference.what for difference in verification.differences)
    return MeasurementError(
        "the run does not agree with what is measured now",
        seen=f"{len(verification.disagreeing)} of {len(verification.readings)} numbers, such as "
        f"the {worst.quantity} {worst.recorded:.9g}, now {worst.measured:.9g}",
        hint=f"what differs besides: {named}"
        if named
        else "nothing else differs: is the model's own code as it was? landscape doctor",
    )
