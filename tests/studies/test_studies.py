"""Every study at the preset ``smoke``: what it writes, and what its claims say."""

from __future__ import annotations

import json
import math
import re

import pytest

from landscape_cli.store import open_run
from landscape_cli.studies import registry

FIELDS = {"claim", "source", "expected", "observed", "holds"}


@pytest.mark.parametrize("name", registry.NAMES)
def test_a_study_leaves_claims_runs_and_a_report(name, reproduced) -> None:
    result = reproduced(name)
    assert result.study == name
    assert result.claims
    check_claims(result)
    check_files(result)
    check_report(result)


def check_claims(result) -> None:
    for claim in result.claims:
        for text in (claim.claim, claim.source, claim.expected, claim.observed):
            assert text.strip()
            assert "nan" not in re.findall(r"[a-z]+", text.lower()), text
        assert re.search(r"\(\d{4}\)", claim.source), "the source has its year"
        assert claim.holds in (True, False, None)
        if claim.interval is not None:
            assert all(map(math.isfinite, claim.interval))
            assert claim.interval[0] <= claim.interval[1]


def check_files(result) -> None:
    written = json.loads((result.folder / "claims.json").read_text())
    summary = result.summary()
    assert set(summary) == {"study", "preset", "report", "claims"}
    assert all(set(claim) == FIELDS for claim in summary["claims"])
    for kept, told in zip(written["claims"], summary["claims"], strict=True):
        assert {name: kept[name] for name in FIELDS} == told
    for path in written["runs"].values():
        assert open_run(path).complete


def check_report(result) -> None:
    page = result.report.read_text()
    assert page.startswith("<!doctype html>")
    figures = re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)
    assert figures
    assert all(json.loads(figure)["data"] for figure in figures)
    text = re.sub(r"&#?\w+;|<[^>]+>", "", page)
    for claim in result.claims:
        start = re.split(r"[<>&'\"]", claim.claim)[0]
        assert start in text
