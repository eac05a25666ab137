"""The table of all claims."""

from __future__ import annotations

import json

import pytest

from landscape_cli.errors import StoreError
from landscape_cli.studies.table import read_claims, render_table

CLAIM = {
    "claim": "|a| is small",
    "source": "Somebody (2018), Fig. 1",
    "expected": "below 1",
    "observed": "ratio 0.5 (0.4 to 0.6, 5 seeds)",
    "holds": True,
    "interval": [0.4, 0.6],
    "explanation": "It is.",
}


def write(folder, study, claims) -> None:
    folder.mkdir(parents=True)
    values = {"study": study, "title": "T", "source": "S", "preset": "laptop", "claims": claims}
    (folder / "claims.json").write_text(json.dumps(values))


def test_studies_come_in_their_order_with_a_row_for_each_claim(tmp_path) -> None:
    undecided = {**CLAIM, "claim": "b", "holds": None, "explanation": ""}
    write(tmp_path / "z", "santurkar-fig1", [CLAIM])
    write(tmp_path / "a", "santurkar-fig4", [{**CLAIM, "holds": False}, undecided])
    text = render_table(read_claims(tmp_path))
    assert text.index("`santurkar-fig1`") < text.index("`santurkar-fig4`")
    assert "| `santurkar-fig1` | 1 | 0 | 0 |" in text
    assert "| `santurkar-fig4` | 0 | 1 | 1 |" in text
    rows = [line for line in text.splitlines() if line.endswith("** |")]
    assert [row.rsplit("**", 2)[1] for row in rows] == ["holds", "does not hold", "undecided"]
    assert rows[0].startswith(
        "| \\|a\\| is small | below 1 | ratio 0.5 (0.4 to 0.6, 5 seeds). It is."
    )


def test_a_folder_without_claims_is_refused(tmp_path) -> None:
    with pytest.raises(StoreError) as caught:
        read_claims(tmp_path)
    assert "no claims.json" in caught.value.what


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"study": "x"}'])
def test_damaged_claims_are_named(tmp_path, content) -> None:
    (tmp_path / "claims.json").write_text(content)
    with pytest.raises(StoreError) as caught:
        read_claims(tmp_path)
    assert "claims.json" in caught.value.seen
