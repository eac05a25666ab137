"""What every study works with: a folder, a size, data, the tool's own training and probe."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import numpy as np

from landscape_cli.errors import SpecError, StoreError
from landscape_cli.plan import versions
from landscape_cli.progress import Progress, Silent
from landscape_cli.runs import Run
from landscape_cli.studies.contract import Preset

if TYPE_CHECKING:
    from landscape_cli.training import TrainingSpec

Size = TypeVar("Size")
DATA_ROOT = "LANDSCAPE_DATA"
"""Environment variable with the folder of the published data."""

_SHAPES = {"cifar10": (3, 32), "cifar100": (3, 32), "mnist": (1, 28), "fashion-mnist": (1, 28)}
_DIGITS = (1, 8)


@dataclass(frozen=True)
class Images:
    """Specs of an image data set, and the shape of its images.

    Attributes:
        train: spec of the part to train on.
        test: spec of the held-out part.
        channels: of the images.
        size: height and width.
    """

    train: str
    test: str
    channels: int
    size: int

    @property
    def options(self) -> str:
        """The shape as options of a convolutional sample model."""
        return f"in_channels={self.channels}&image_size={self.size}"

    @property
    def features(self) -> int:
        """Numbers in one image."""
        return self.channels * self.size**2


@dataclass(frozen=True)
class Trained:
    """A recorded training, made now or found in the folder.

    Attributes:
        name: within the study, ``batch-0`` say.
        model: spec it was built from.
        data: spec it was trained on.
        loss: name of the loss.
        lr: the step size.
        checkpoints: ordered by step.
        history: columns of ``history.csv``.
        diverged_at: the step whose loss was not finite, or None.
        wall_seconds: how long it took.
    """

    name: str
    model: str
    data: str
    loss: str
    lr: float
    checkpoints: tuple[Path, ...]
    history: Mapping[str, np.ndarray]
    diverged_at: int | None
    wall_seconds: float

    @property
    def losses(self) -> np.ndarray:
        """The loss of every step from the first on, shape (steps,)."""
        return np.asarray(self.history["loss"][self.history["step"] > 0])

    @property
    def final_test_accuracy(self) -> float:
        """The last held-out accuracy; NaN where none was taken."""
        return float(self.tested("test_accuracy")[-1])

    def tested(self, column: str) -> np.ndarray:
        """Return the finite entries of a held-out column, NaN alone where there are none."""
        values = self.history.get(column, np.empty(0))
        finite = values[np.isfinite(values)]
        return finite if finite.size else np.array([np.nan])


class Workbench:
    """Trains and probes for a study, keeps everything in its folder, and reuses what is there.

    Args:
        folder: where trainings and runs are kept; it exists.
        preset: the size of the study.
        data_root: folder of the published data; needed by ``paper`` only.
        progress: is told what begins and how far it is.
    """

    def __init__(
        self,
        folder: Path,
        preset: Preset = "laptop",
        *,
        data_root: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.folder = folder
        self.preset = preset
        self.progress = progress or Silent()
        self.runs: dict[str, Path] = {}
        self._data_root = data_root

    def choose(self, *, smoke: Size, laptop: Size, paper: Size) -> Size:
        """Return the value for the preset."""
        return {"smoke": smoke, "laptop": laptop, "paper": paper}[self.preset]

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that intervals are over."""
        return tuple(range(self.choose(smoke=2, laptop=5, paper=5)))

    @property
    def device(self) -> str:
        """Where to train and probe: small networks are fastest on the CPU."""
        return self.choose(smoke="cpu", laptop="cpu", paper="auto")

    def images(self, published: str = "cifar10") -> Images:
        """Return the data: handwritten digits, and in ``paper`` the published set.

        Raises:
            SpecError: If ``paper`` was not told the folder of the published data; they are
                never replaced by others.
        """
        if self.preset != "paper":
            return Images("sklearn:digits", "sklearn:digits?split=test", *_DIGITS)
        spec = f"sample:{published}?root={quote(str(self.data_root), safe='/')}"
        return Images(spec, f"{spec}&split=test", *_SHAPES[published])

    @property
    def data_root(self) -> Path:
        """The folder of the published data.

        Raises:
            SpecError: If it was not given, or does not exist.
        """
        given = self._data_root or os.environ.get(DATA_ROOT)
        if not given or not Path(given).expanduser().is_dir():
            raise SpecError(
                "the published data are needed for the preset 'paper'",
                seen=given or "no folder",
                hint=f"--data-root DIR or {DATA_ROOT}=DIR, or --preset laptop for digits",
            )
        return Path(given).expanduser().resolve()

    def say(self, text: str) -> None:
        """Tell what begins."""
        self.progress.notice(text)

    def train(self, name: str, model: str, data: str, **settings: Any) -> Trained:
        """Train with `landscape_cli.training.train`, unless the folder holds that very training.

        Args:
            name: within the study; a folder of that name is made.
            model: spec of the model.
            data: spec of the data.
            **settings: further fields of `TrainingSpec`, ``test_data`` included.
        """
        from landscape_cli.training import TrainingSpec, train

        settings = {"device": self.device, **settings}
        spec = TrainingSpec.from_mapping({"model": model, "data": data, **settings})
        folder = self.folder / "trainings" / name
        if not _holds(folder, spec):
            self.say(f"training {name}")
            if folder.exists():
                shutil.rmtree(folder)
            folder.parent.mkdir(parents=True, exist_ok=True)
            train(model, data, out=folder, progress=self.progress, **settings)
        return _read_training(folder, name, spec)

    def probe(
        self, name: str, trained: Trained, *, at: Sequence[Path] | None = None, **settings: Any
    ) -> Run:
        """Probe a training with `landscape.probe`, unless the folder holds that very run.

        Args:
            name: the run is ``runs/NAME.h5``.
            trained: whose trajectory; its model, data and loss are what is probed.
            at: checkpoints, instead of all that were recorded.
            **settings: ``model`` or ``data`` in place of the training's, and fields of
                `ProbeSpec`.
        """
        from landscape_cli.probing import probe

        path = self.folder / "runs" / f"{name}.h5"
        path.parent.mkdir(parents=True, exist_ok=True)
        own = {"model": trained.model, "data": trained.data, "loss": trained.loss}
        arguments = {**own, "device": self.device, "progress": self.progress, **settings}
        checkpoints = list(trained.checkpoints if at is None else at)
        self.say(f"probing {name}: {len(checkpoints)} checkpoints")
        self.runs[name] = path
        try:
            return probe(checkpoints, output=path, resume=True, **arguments)
        except StoreError:  # it is of other settings, or damaged: measured anew
            return probe(checkpoints, output=path, overwrite=True, **arguments)


def _holds(folder: Path, spec: TrainingSpec) -> bool:
    """Return whether a folder holds the finished training that a spec describes."""
    summary = _read_summary(folder)
    wanted = json.loads(json.dumps(asdict(spec)))
    return summary.get("settings") == wanted and summary.get("versions") == versions()


def _read_summary(folder: Path) -> dict[str, Any]:
    from landscape_cli.training.run import SUMMARY

    try:
        return dict(json.loads((folder / SUMMARY).read_text(encoding="utf-8")))
    except (OSError, ValueError):  # it is written last: there is no finished training
        return {}


def _read_training(folder: Path, name: str, spec: TrainingSpec) -> Trained:
    from landscape_cli.record.files import recorded
    from landscape_cli.record.history import read_history

    summary = _read_summary(folder)
    return Trained(
        name=name,
        model=spec.model,
        data=spec.data,
        loss=spec.loss,
        lr=spec.lr,
        checkpoints=tuple(recorded(folder)),
        history=read_history(folder),
        diverged_at=summary["diverged_at"],
        wall_seconds=summary["wall_seconds"],
    )
