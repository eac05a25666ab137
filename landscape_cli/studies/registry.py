"""Every study by name; each is imported when it is asked for."""

from __future__ import annotations

import difflib
import importlib
from typing import cast

from landscape_cli.errors import SpecError
from landscape_cli.studies.contract import Study

NAMES: tuple[str, ...] = (
    "santurkar-fig1",
    "santurkar-fig2",
    "santurkar-fig3",
    "santurkar-fig4",
    "santurkar-fig9",
    "santurkar-fig10",
    "santurkar-fig11",
    "santurkar-fig12",
    "santurkar-theorems",
    "flaherty-smoothness",
    "cai-ols",
    "lange-fig3",
    "lange-fig4",
    "lange-fig5",
    "lange-fig6",
    "lange-fig8",
    "lange-table1",
    "lange-prop7",
)
"""In the order of ``landscape reproduce --list``; the module of each has ``_`` for ``-``."""


def find(name: str) -> Study:
    """Return the study of that name; ``-`` and ``_`` are the same.

    Raises:
        SpecError: If there is none.

    Example:
        >>> find("santurkar-fig4").source
        'Santurkar et al. (2018), Fig. 4'
    """
    spelled = name.replace("_", "-")
    if spelled not in NAMES:
        close = difflib.get_close_matches(spelled, NAMES, n=1)
        raise SpecError(
            f"no study is named {name!r}",
            seen=", ".join(NAMES),
            hint=f"landscape reproduce {close[0]}" if close else "landscape reproduce --list",
        )
    module = importlib.import_module(f"landscape_cli.studies.{spelled.replace('-', '_')}")
    return cast("Study", module.STUDY)


def every() -> list[Study]:
    """Return all studies, in their order."""
    return [find(name) for name in NAMES]
