"""The whole way on small real data: train with and without BatchNorm, probe, compare, draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from landscape_cli.errors import AdapterError, StoreError
from landscape_cli.progress import Progress, Silent

if TYPE_CHECKING:
    from landscape_cli.compare import Comparison

DATA = "sklearn:digits"
MODEL = "sample:vgg?config=8,M,16,M,16&in_channels=1&image_size=8&seed=0&norm={norm}"
NORMS = {"no norm": "none", "BatchNorm": "batch"}
"""The norm of each label, what is held against first."""


@dataclass(frozen=True)
class Demo:
    """What the demonstration left.

    Attributes:
        runs: the measured files, by label.
        report: the comparison, as HTML.
        figures: all figures of both runs, as HTML.
        comparison: what the report shows.
    """

    runs: dict[str, Path]
    report: Path
    figures: Path
    comparison: Comparison

    def findings(self) -> list[str]:
        """Return what was seen in two lines, whichever way it came out."""
        pairing = self.comparison.pairings[0]
        return [pairing.contrast(quantity).finding() for quantity in ("loss_range", "beta")]


def run_demo(
    folder: str | Path,
    *,
    steps: int = 400,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
) -> Demo:
    """Train a small VGG on handwritten digits twice, probe both trajectories, compare and draw.

    The same commands by hand: ``landscape train``, ``probe``, ``compare``, ``plot``. Everything
    is written into `folder`; what an earlier demonstration left there is replaced.

    Args:
        folder: where to write; it is made if it does not exist.
        steps: training steps of each network.
        progress: is told how far each stage is.
        announce: is told what begins, one line each.

    Raises:
        AdapterError: If the plugin with the digits, landscape-sklearn, is not installed.
        StoreError: If the folder cannot be made.
    """
    from landscape_cli.compare import compare
    from landscape_cli.figures import plot

    folder, watcher = Path(folder), progress or Silent()
    tell = announce or watcher.notice
    _require_digits()
    _make(folder)
    runs = {}
    for label, norm in NORMS.items():
        tell(f"training a small VGG on digits, {label}: {steps} steps")
        trained = _train(folder / norm, norm, steps, watcher)
        tell(f"probing it, {label}: {len(trained)} checkpoints")
        runs[label] = _probe(trained, norm, folder / f"{norm}.h5", watcher)
    tell("comparing and drawing")
    report, figures = folder / "comparison.html", folder / "figures.html"
    comparison = compare(*runs.values(), labels=list(runs), output=report)
    plot(*runs.values(), labels=list(runs), output=figures)
    return Demo(runs, report, figures, comparison)


def _require_digits() -> None:
    from landscape_cli.adapters import registry

    name = DATA.partition(":")[0]
    if name not in registry.data().names():
        raise AdapterError(
            "the plugin with the digits is not installed",
            seen=", ".join(registry.data().names()),
            hint="pip install landscape-sklearn, or `make setup` in a clone",
        )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            "the folder for the demonstration cannot be made",
            seen=f"{folder}: {error.strerror}",
            hint="--out DIR, where you may write",
        ) from None


def _train(folder: Path, norm: str, steps: int, progress: Progress) -> tuple[Path, ...]:
    from landscape_cli.training import train

    result = train(
        MODEL.format(norm=norm),
        DATA,
        out=folder,
        steps=steps,
        batch_size=64,
        lr=0.1,
        every=max(1, steps // 40),
        device="cpu",
        overwrite=True,
        progress=progress,
    )
    return result.checkpoints


def _probe(checkpoints: tuple[Path, ...], norm: str, output: Path, progress: Progress) -> Path:
    from landscape_cli.probing import probe

    probe(
        checkpoints,
        model=MODEL.format(norm=norm),
        data=DATA,
        batch_size=128,
        steps="0.25:4:12",
        device="cpu",
        output=output,
        overwrite=True,
        progress=progress,
    )
    return output
