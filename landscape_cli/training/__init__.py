"""Seeded training that leaves a trajectory: what ``landscape train`` and the studies run."""

from landscape_cli.training.run import TrainingResult, train
from landscape_cli.training.spec import TrainingSpec

__all__ = ["TrainingResult", "TrainingSpec", "train"]
