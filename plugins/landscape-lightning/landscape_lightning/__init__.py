"""Lightning for landscape: ``--model lightning:FILE.py:Module --data lightning:FILE.py:Data``."""

from landscape_lightning.datamodules import open_data
from landscape_lightning.modules import build_model

__all__ = ["build_model", "open_data"]
