"""The list of studies."""

from __future__ import annotations

import subprocess
import sys

import pytest

from landscape_cli.errors import SpecError
from landscape_cli.studies import registry


def test_every_study_has_the_name_it_is_found_by() -> None:
    assert [study.name for study in registry.every()] == list(registry.NAMES)
    assert len(set(registry.NAMES)) == len(registry.NAMES)


def test_every_study_says_what_it_shows_and_where_it_was_published() -> None:
    for study in registry.every():
        assert study.title.strip()
        assert any(year in study.source for year in ("2018", "2019", "2022"))


def test_underscores_stand_for_dashes() -> None:
    assert registry.find("santurkar_fig4") is registry.find("santurkar-fig4")


def test_an_unknown_study_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SpecError) as caught:
        registry.find("santurkar-fig")
    assert "no study is named 'santurkar-fig'" in caught.value.what
    assert "santurkar-fig4" in caught.value.seen
    assert caught.value.hint.startswith("landscape reproduce santurkar-fig")


def test_listing_the_studies_loads_no_torch() -> None:
    code = (
        "import sys\n"
        "from landscape_cli.studies import registry\n"
        "import landscape_cli.cli.reproduce\n"
        "registry.every()\n"
        "assert not {'torch', 'plotly', 'h5py'} & set(sys.modules)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
