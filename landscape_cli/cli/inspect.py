"""``landscape inspect``: what a checkpoint holds, and how to probe it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from landscape_cli.cli import output
from landscape_cli.cli.options import Debug, Json

if TYPE_CHECKING:
    from landscape_cli.checkpoints.inspection import Inspection

SHOWN = 30
"""Tensors that are listed unless all are asked for."""


def inspect(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="A file, or a folder that is one.")
    ],
    *,
    every: Annotated[bool, typer.Option("--all", help="List every tensor and norm layer.")] = False,
    json: Json = False,
    debug: Debug = False,  # noqa: ARG001
) -> None:
    """Show what a checkpoint holds, and a command to start from. Nothing in it is executed."""
    from landscape_cli.checkpoints import inspect as look

    found = look(checkpoint)
    if json:
        output.write_json(found.to_dict())
        return
    _write_facts(found)
    _write_tensors(found, every=every)
    for note in found.notes:
        output.write(f"note: {note}")
    output.write(f"\nstart from:\n  {found.suggested_command}")
    if found.placeholders:
        output.write(f"  with your own {', '.join(found.placeholders)}")


def _write_facts(found: Inspection) -> None:
    info = found.info
    facts = {
        "checkpoint": str(info.path),
        "format": info.format,
        "step": "unknown" if info.training_step < 0 else str(info.training_step),
        "lr": "unknown" if info.learning_rate is None else f"{info.learning_rate:g}",
        "sha256": info.sha256,
        "looks like": found.family,
        "also holds": ", ".join([*found.variants, *["an optimiser's state"] * found.optimiser]),
        "not finite": ", ".join(found.non_finite),
    }
    for name, total in found.totals.items():
        facts[name] = f"{total.elements:,} numbers in {total.tensors} tensors, {_size(total.bytes)}"
    for name, text in facts.items():
        if text:
            output.write(f"{name + ':':<12} {text}")


def _write_tensors(found: Inspection, *, every: bool) -> None:
    rows = [
        (tensor.name, "×".join(map(str, tensor.shape)) or "scalar", tensor.dtype)
        for tensor in found.tensors
    ]
    shown = rows if every else rows[:SHOWN]
    output.write_table(("tensor", "shape", "type"), shown, left=3)
    if len(rows) > len(shown):
        output.write(f"… and {len(rows) - len(shown)} more, which --all lists")
    kinds: dict[str, list[str]] = {}
    for layer in found.norm_layers:
        kinds.setdefault(layer.kind, []).append(f"{layer.name} ({layer.features})")
    for kind, names in kinds.items():
        listed = ", ".join(names if every else names[:5])
        more = "" if every or len(names) <= 5 else ", …"
        output.write(f"{len(names)} {kind} norm layers: {listed}{more}")


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"
