"""Runs on disk: one HDF5 file each, whole at every instant, trusted in nothing when read."""

from landscape_cli.store.opening import open_run
from landscape_cli.store.writing import write

__all__ = ["open_run", "write"]
