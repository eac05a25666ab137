"""``reproduce`` as a function and as a command."""

from __future__ import annotations

import json
import shutil

import pytest
from typer.testing import CliRunner

from landscape_cli.cli.app import app
from landscape_cli.errors import SpecError, StoreError
from landscape_cli.studies import registry
from landscape_cli.studies.reproduce import reproduce
from landscape_cli.studies.workbench import DATA_ROOT


def call(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def theorems(reproduced, tmp_path):
    """A copy of the folder of a study that was run."""
    return shutil.copytree(reproduced("santurkar-theorems").folder, tmp_path / "theorems")


def test_the_list_as_json_is_name_title_and_source() -> None:
    listed = json.loads(call("reproduce", "--list", "--json").stdout)
    assert [item["name"] for item in listed] == list(registry.NAMES)
    assert all(set(item) == {"name", "title", "source"} for item in listed)


def test_the_list_names_every_study() -> None:
    answer = call("reproduce", "--list")
    assert answer.exit_code == 0
    assert all(name in answer.stdout for name in registry.NAMES)


def test_a_study_as_json_has_the_four_keys_and_a_claim_that_fails_still_exits_with_0(
    theorems,
) -> None:
    answer = call(
        *("reproduce", "santurkar-theorems", "--preset", "smoke", "--out", theorems, "--json", "-q")
    )
    assert answer.exit_code == 0, answer.stderr
    value = json.loads(answer.stdout)
    assert set(value) == {"study", "preset", "report", "claims"}
    assert (value["study"], value["preset"]) == ("santurkar-theorems", "smoke")
    assert any(claim["holds"] is False for claim in value["claims"])
    for claim in value["claims"]:
        assert set(claim) == {"claim", "source", "expected", "observed", "holds"}


def test_running_again_uses_what_is_there_and_says_the_same(reproduced) -> None:
    first = reproduced("santurkar-fig9")
    runs = sorted((first.folder / "runs").iterdir())
    stamps = [path.stat().st_mtime_ns for path in runs]
    again = reproduce("santurkar-fig9", preset="smoke", out=first.folder)
    assert again.claims == first.claims
    assert [path.stat().st_mtime_ns for path in runs] == stamps


def test_the_text_says_verdict_expectation_and_observation(theorems) -> None:
    answer = call("reproduce", "santurkar-theorems", "--preset=smoke", "--out", theorems, "-q")
    assert answer.exit_code == 0
    assert "holds: Theorem 4.1" in answer.stdout
    assert "does not hold: Theorem 4.4, as it is printed" in answer.stdout
    assert f"report: {theorems / 'report.html'}" in answer.stdout


def test_the_table_is_written_from_the_claims_in_a_folder(theorems) -> None:
    answer = call("reproduce", "--table", theorems)
    assert answer.exit_code == 0
    assert "### `santurkar-theorems`" in answer.stdout
    assert "| **does not hold** |" in answer.stdout


@pytest.mark.parametrize(
    ("args", "what", "hint"),
    [
        ([], "no study was named", "landscape reproduce --list"),
        (["santurkar-fig40"], "no study is named 'santurkar-fig40'", "santurkar-fig4"),
        (["santurkar-fig4", "--preset", "huge"], "no preset is named 'huge'", "--preset laptop"),
    ],
)
def test_wrong_usage_ends_with_2_and_three_lines(args, what, hint) -> None:
    answer = call("reproduce", *args)
    assert answer.exit_code == 2
    assert what in answer.stderr.splitlines()[0]
    assert hint in answer.stderr.splitlines()[-1]
    assert len(answer.stderr.splitlines()) == 3


def test_the_paper_preset_without_its_data_is_refused_before_anything_is_trained(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.delenv(DATA_ROOT, raising=False)
    with pytest.raises(SpecError, match="published data are needed"):
        reproduce("santurkar-fig4", preset="paper", out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_named(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as caught:
        reproduce("santurkar-fig4", preset="smoke", out=tmp_path / "file" / "below")
    assert "cannot be made" in caught.value.what
