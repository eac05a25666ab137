"""torchvision, or a clear word about why it cannot be used."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from landscape_cli.errors import AdapterError

try:
    torchvision: Any = importlib.import_module("torchvision")
except (ImportError, OSError, RuntimeError) as error:  # a build for another torch raises any
    raise AdapterError(
        "torchvision is not installed in a build that fits this torch",
        seen=f"torch {torch.__version__}; {type(error).__name__}: {str(error).splitlines()[0]}",
        hint="pytorch.org/get-started names the command that installs both together",
    ) from error

__all__ = ["torchvision"]
