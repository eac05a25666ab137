"""Published studies, one file each: what was claimed, repeated, and what was seen."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from landscape_cli.studies.contract import Claim, Findings, Study, StudyResult
    from landscape_cli.studies.workbench import Workbench

__all__ = ["Claim", "Findings", "Study", "StudyResult", "Workbench"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "workbench" if name == "Workbench" else "contract"
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
