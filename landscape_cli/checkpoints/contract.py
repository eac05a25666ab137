"""What a checkpoint is to the rest of the package, whatever file it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

UNKNOWN_STEP = -1


@dataclass(frozen=True)
class CheckpointInfo:
    """What can be said of a checkpoint before its tensors are used.

    Attributes:
        path: the file or folder.
        label: short name, unique within a trajectory.
        format: ``safetensors``, ``torch``, ``lightning``, ``hugging-face``, ``distributed``.
        training_step: −1 where unknown.
        learning_rate: step size of training, None where unknown or zero.
        sha256: hash of the file's bytes; of sorted names and bytes where there are several.
    """

    path: Path
    label: str
    format: str
    training_step: int = UNKNOWN_STEP
    learning_rate: float | None = None
    sha256: str = ""


@dataclass(frozen=True)
class Checkpoint:
    """Named tensors and what is known of them. Tensors may be memory-mapped: do not write.

    Attributes:
        info: path, label, step, learning rate, hash.
        tensors: the weights that a probe uses, by the names in the file.
        variants: names of other sets of weights in the same checkpoint (``ema``, ``lora``, …).
        notes: what had to be done to read it, one line each.
    """

    info: CheckpointInfo
    tensors: Mapping[str, Tensor]
    variants: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
