"""Trajectories from a training loop, anybody's: checkpoints that a probe can be pointed at.

recorder = landscape.Recorder("runs/bn", every=100)
...
recorder.step(model, optimizer=optimizer, loss=loss)     # after optimizer.step()
"""

from landscape_cli.record.history import read_history
from landscape_cli.record.live import LiveProbe
from landscape_cli.record.measuring import is_measuring
from landscape_cli.record.recorder import Recorder

__all__ = ["LiveProbe", "Recorder", "is_measuring", "read_history"]
