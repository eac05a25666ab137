"""The recorder as a callback of Lightning.

from landscape_cli.record.lightning import LightningCallback
trainer = L.Trainer(callbacks=[LightningCallback("runs/bn", every=100)])
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from landscape_cli.errors import SpecError
from landscape_cli.record.recorder import Recorder


def _callback_base() -> Any:
    """Return Lightning's callback class, under either name of the package."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            return importlib.import_module(name).Callback
        except ModuleNotFoundError as error:
            if error.name not in (name, name.partition(".")[0]):
                raise
    raise SpecError(
        "Lightning is not installed",
        seen="neither lightning nor pytorch_lightning",
        hint="pip install lightning",
    )


class LightningCallback(_callback_base()):  # type: ignore[misc]
    """Records a trajectory from ``Trainer.fit``, the initial weights included if they are due.

    A step is one of ``trainer.global_step``; batches that only accumulate gradients are none.
    With several optimizers the learning rate is the first one's.

    Args:
        folder: of the recording.
        submodule: name of the part of the LightningModule to record (``net``), so that the
            checkpoints fit it alone; empty for the whole.
        **options: those of `Recorder`.

    Raises:
        SpecError: If Lightning is not installed, or an option cannot be meant.
    """

    def __init__(self, folder: str | Path, *, submodule: str = "", **options: Any) -> None:
        super().__init__()
        self.submodule = submodule
        self._folder = folder
        self._options = options
        self.recorder: Recorder | None = None

    def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Open the recording; note the weights that training starts from."""
        if self.recorder is None:  # the folder must not be touched before all processes run
            self.recorder = Recorder(self._folder, **self._options)
        if trainer.global_step == 0:
            self.recorder.step(self._recorded(pl_module), step=0, **_rate_source(trainer))

    def on_train_batch_end(
        self, trainer: Any, pl_module: nn.Module, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take note of the step, if the batch made one."""
        del batch, batch_idx
        recorder = self.recorder
        if recorder is None or trainer.global_step <= recorder.last_step:
            return
        recorder.step(
            self._recorded(pl_module),
            step=trainer.global_step,
            loss=_loss_of(outputs),
            **_rate_source(trainer),
        )

    def on_train_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Write what waits."""
        del trainer, pl_module
        self._close()

    def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
        """Write what waits before the exception goes on."""
        del trainer, pl_module, exception
        self._close()

    def _close(self) -> None:
        if self.recorder is not None:
            self.recorder.close()

    def _recorded(self, module: nn.Module) -> nn.Module:
        return module.get_submodule(self.submodule) if self.submodule else module


def _loss_of(outputs: Any) -> Tensor | None:
    loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
    return loss if isinstance(loss, Tensor) else None


def _rate_source(trainer: Any) -> dict[str, Any]:
    return {"optimizer": trainer.optimizers[0]} if trainer.optimizers else {}
