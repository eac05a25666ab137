"""Studies at the smallest size, each run once and shared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from landscape_cli.studies.contract import StudyResult
from landscape_cli.studies.reproduce import reproduce


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], StudyResult]:
    """The result of a study at the preset ``smoke``, by name."""
    pytest.importorskip("landscape_sklearn")
    kept: dict[str, StudyResult] = {}

    def run(name: str) -> StudyResult:
        if name not in kept:
            kept[name] = reproduce(name, preset="smoke", out=tmp_path_factory.mktemp(name))
        return kept[name]

    return run
