"""Finished units on disk, appended and checksummed: what a killed run goes on from."""

from landscape_cli.journal.records import read
from landscape_cli.journal.writing import Journal

__all__ = ["Journal", "read"]
