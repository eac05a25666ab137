"""timm for landscape: ``--model timm:vit_tiny_patch16_224 --data timm:FOLDER``."""

from landscape_timm.data import open_folder
from landscape_timm.models import build_model

__all__ = ["build_model", "open_folder"]
