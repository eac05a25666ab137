"""Reading checkpoints: one file per format, named tensors out."""

from landscape_cli.checkpoints.contract import Checkpoint, CheckpointInfo
from landscape_cli.checkpoints.inspection import Inspection, inspect
from landscape_cli.checkpoints.matching import Matching, load_into, match
from landscape_cli.checkpoints.reading import describe, read
from landscape_cli.checkpoints.trajectories import find

__all__ = [
    "Checkpoint",
    "CheckpointInfo",
    "Inspection",
    "Matching",
    "describe",
    "find",
    "inspect",
    "load_into",
    "match",
    "read",
]
