"""timm, or a clear word about why it cannot be used."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from landscape_cli.errors import AdapterError

try:
    timm: Any = importlib.import_module("timm")
    importlib.import_module("timm.data")
    torchvision: Any = importlib.import_module("torchvision")
except (ImportError, OSError, RuntimeError) as error:  # torchvision for another torch raises any
    raise AdapterError(
        "timm is not installed, or its torchvision is not one that fits this torch",
        seen=f"torch {torch.__version__}; {type(error).__name__}: {str(error).splitlines()[0]}",
        hint="pip install timm; pytorch.org/get-started has torch and torchvision together",
    ) from error

__all__ = ["timm", "torchvision"]
