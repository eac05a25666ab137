"""The recorder as a callback of the transformers Trainer.

from landscape_cli.record.transformers import TransformersCallback
trainer = Trainer(..., callbacks=[TransformersCallback("runs/gpt2", every=100)])
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from landscape_cli.errors import SpecError
from landscape_cli.record.recorder import Recorder


def _callback_base() -> Any:
    """Return the callback class of transformers."""
    try:
        return importlib.import_module("transformers").TrainerCallback
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
    raise SpecError(
        "transformers is not installed", seen="no module", hint="pip install transformers"
    )


class TransformersCallback(_callback_base()):  # type: ignore[misc]
    """Records a trajectory from ``Trainer.train``, the initial weights included if they are due.

    The learning rate is that of the optimizer's first group after its scheduler has moved on:
    the step size that would be used next. What the Trainer logs, the loss above all, goes into
    the history.

    Args:
        folder: of the recording.
        **options: those of `Recorder`.

    Raises:
        SpecError: If transformers is not installed, or an option cannot be meant.
    """

    def __init__(self, folder: str | Path, **options: Any) -> None:
        self._folder = folder
        self._options = options
        self.recorder: Recorder | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the recording; note the weights that training starts from."""
        del args, control
        if self.recorder is None:  # the folder must not be touched before all processes run
            self.recorder = Recorder(self._folder, **self._options)
        if state.global_step == 0:
            self._step(0, kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take note of one step."""
        del args, control
        self._step(state.global_step, kwargs)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Add what was logged to the step's row."""
        del args, control, kwargs
        numbers = {
            name: value
            for name, value in (logs or {}).items()
            if isinstance(value, int | float) and name not in ("step", "learning_rate")
        }
        if self.recorder is not None and numbers:
            self.recorder.note(state.global_step, **numbers)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write what waits."""
        del args, state, control, kwargs
        if self.recorder is not None:
            self.recorder.close()

    def _step(self, step: int, given: dict[str, Any]) -> None:
        if self.recorder is not None:
            self.recorder.step(given["model"], step=step, optimizer=given.get("optimizer"))
