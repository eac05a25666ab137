"""Probe the loss landscape around any PyTorch checkpoint.

    import landscape_cli as landscape

    run = landscape.probe("run/step-100.safetensors", model=model, data=dataset, lr=0.1)
    print(run["effective_smoothness/beta"])

Nothing heavy is imported before it is used: ``import landscape_cli`` does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from landscape_cli.compare import compare
    from landscape_cli.errors import LandscapeError
    from landscape_cli.figures import plot
    from landscape_cli.probing import probe
    from landscape_cli.record import Recorder
    from landscape_cli.runs import Run
    from landscape_cli.store import open_run

__version__ = "0.1.0"
__all__ = ["LandscapeError", "Recorder", "Run", "compare", "open_run", "plot", "probe"]

_HOMES = {
    "LandscapeError": "errors",
    "Recorder": "record",
    "Run": "runs",
    "compare": "compare",
    "open_run": "store",
    "plot": "figures",
    "probe": "probing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
