"""Tables for landscape: ``--data 'tables:data.parquet?y=label'``."""

from landscape_tables.adapter import open_table
from landscape_tables.dataset import TableSamples

__all__ = ["TableSamples", "open_table"]
