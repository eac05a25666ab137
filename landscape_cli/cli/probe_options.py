"""The options of ``landscape probe``, which other commands take too."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from landscape_cli.cli.configuration import is_unset, parse_chunk
from landscape_cli.cli.options import OBJECTIVE, OUTPUT, PLACE, option


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """Every option of ``landscape probe``; None, or empty, is what was not given.

    The names are those of `ProbeSpec`, so that a file of options can be read into either.
    """

    checkpoints: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CHECKPOINT",
            help="Files, folders or globs; several of them are a trajectory.",
            show_default=False,
        ),
    ] = None
    model: Annotated[
        str | None,
        option(
            "--model",
            "-m",
            metavar="SPEC",
            help="ADAPTER:TARGET?key=value, or FILE.py:FACTORY.",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    data: Annotated[
        str | None,
        option(
            "--data",
            "-d",
            metavar="SPEC",
            help="ADAPTER:TARGET?key=value, or FILE.py:FACTORY.",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    loss: Annotated[
        str | None,
        option(
            metavar="NAME",
            help="cross-entropy, mse, sse, l1, bce, nll, model, or FILE.py:FUNCTION.",
            unless="cross-entropy",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    batch_size: Annotated[
        int | None,
        option(
            metavar="N",
            help="Samples in a batch.",
            unless="128",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    batches: Annotated[
        int | None,
        option(
            metavar="K",
            help="Fixed batches that the objective is the mean over.",
            unless="1",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    lr: Annotated[
        float | None,
        option(
            metavar="X",
            help="Training step size that steps are multiples of.",
            unless="the checkpoint's",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    steps: Annotated[
        str | None,
        option(
            metavar="LO:HI:COUNT",
            help="Step multiples; append :log or :lin for the spacing.",
            unless="0.5:4:16:log",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    directions: Annotated[
        list[str] | None,
        option(
            "--direction",
            metavar="NAME",
            help="gradient, random:N, random-filter:N, eigenvector:K, toward:CHECKPOINT, update "
            "or file:PATH; can be repeated.",
            unless="gradient",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    measures: Annotated[
        list[str] | None,
        option(
            "--measure",
            metavar="NAME",
            help="A further measure, see `landscape adapters`; can be repeated.",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    norm_mode: Annotated[
        str | None,
        option(
            metavar="MODE",
            help="Statistics of norm layers: batch, running or frozen.",
            unless="batch",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    plane: Annotated[
        str | None,
        option(
            metavar="A,B",
            help="Also a loss surface on two directions.",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    plane_steps: Annotated[
        str | None,
        option(
            metavar="LO:HI:COUNT",
            help="Multiples along both sides of the plane.",
            unless="-1:1:21:lin",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    weights: Annotated[
        str | None,
        option(
            metavar="NAME",
            help="Which weights of the checkpoint, see `landscape inspect`.",
            unless="default",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    parameters: Annotated[
        list[str] | None,
        option(
            metavar="PATTERN",
            help="Move only the parameters so named, as layer4.*; can be repeated.",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    freeze: Annotated[
        list[str] | None,
        option(
            metavar="PATTERN",
            help="Leave the parameters so named where they are; can be repeated.",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    seed: Annotated[
        int | None,
        option(
            metavar="N",
            help="Decides batches, random directions and dropout.",
            unless="0",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    device: Annotated[
        str | None,
        option(
            metavar="NAME",
            help="auto, cpu, cuda, cuda:1, ...; several, as cuda:0,cuda:1, measure together.",
            unless="auto",
            rich_help_panel=PLACE,
        ),
    ] = None
    dtype: Annotated[
        str | None,
        option(
            metavar="TYPE",
            help="float32, float64 or bfloat16.",
            unless="float32",
            rich_help_panel=PLACE,
        ),
    ] = None
    chunk: Annotated[
        str | None,
        option(
            metavar="N|auto",
            help="Step points evaluated together.",
            unless="auto",
            rich_help_panel=PLACE,
        ),
    ] = None
    strategy: Annotated[
        str | None,
        option(
            metavar="NAME",
            help="How points are evaluated; auto chooses by rule and by timing.",
            unless="auto",
            rich_help_panel=PLACE,
        ),
    ] = None
    micro_batch: Annotated[
        int | None,
        option(
            metavar="N",
            help="Samples evaluated at a time, where no layer looks at the whole batch.",
            rich_help_panel=PLACE,
        ),
    ] = None
    per_layer: Annotated[
        bool | None,
        option(
            "--per-layer/--no-per-layer",
            help="Gradient change, distance and smoothness of every layer: --measure per-layer.",
            unless="no",
            rich_help_panel=OBJECTIVE,
        ),
    ] = None
    allow_tf32: Annotated[
        bool | None,
        option(
            "--allow-tf32/--no-allow-tf32",
            help="Let a GPU round products to TF32.",
            unless="no",
            rich_help_panel=PLACE,
        ),
    ] = None
    engine: Annotated[
        str | None,
        option(
            metavar="NAME",
            help="local or ray.",
            unless="local",
            rich_help_panel=PLACE,
        ),
    ] = None
    workers: Annotated[
        int | None,
        option(
            metavar="N",
            help="Processes that measure, at least one for each device; with --device cuda, on as "
            "many GPUs.",
            unless="1",
            rich_help_panel=PLACE,
        ),
    ] = None
    gpus_per_worker: Annotated[
        float | None,
        option(
            metavar="X",
            help="GPUs of every worker of the engine ray, or a share of one.",
            unless="1 where there are any, else 0",
            rich_help_panel=PLACE,
        ),
    ] = None
    address: Annotated[
        str | None,
        option(
            metavar="HOST:PORT",
            help="The Ray cluster to work on.",
            unless="one on this machine",
            rich_help_panel=PLACE,
        ),
    ] = None
    output: Annotated[
        str | None,
        option(
            "--output",
            "-o",
            metavar="RUN.h5",
            help="The file to write; its folder must exist.",
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
    resume: Annotated[
        bool | None,
        option("--resume", help="Go on with an unfinished output.", rich_help_panel=OUTPUT),
    ] = None
    overwrite: Annotated[
        bool | None,
        option("--overwrite", help="Replace an existing output.", rich_help_panel=OUTPUT),
    ] = None
    json: Annotated[
        bool | None,
        option("--json", help="The summary as JSON.", rich_help_panel=OUTPUT),
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
        """Return what was given of the fields of `ProbeSpec`, checkpoints, model and data too."""
        left_out = ("output", "config", "resume", "overwrite", "json", "quiet", "debug")
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in left_out
        }
        values = {name: value for name, value in values.items() if not is_unset(value)}
        if "chunk" in values:
            values["chunk"] = parse_chunk(values["chunk"])
        if values.pop("per_layer", False):
            values["measures"] = [*values.get("measures", ()), "per_layer"]
        return values
