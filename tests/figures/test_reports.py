"""Reports as HTML: everything in them is text, nothing is loaded, files are whole."""

from __future__ import annotations

import itertools
import json
from html.parser import HTMLParser

import numpy as np
import plotly.graph_objects as go
import pytest
from synthetic import damaged, synthetic_run, with_measures

from landscape_cli import figures
from landscape_cli.compare import compare
from landscape_cli.errors import SpecError, StoreError
from landscape_cli.figures import Panel, Section, Table
from landscape_cli.figures.page import script_json

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&<!--"


class Page(HTMLParser):
    """Collects elements, text, and the contents of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text: list[str] = []
        self.scripts: list[tuple[dict, str]] = []
        self.inside = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = (tag, dict(attrs))

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside and self.inside[0] == "script":
            self.scripts.append((self.inside[1], data))
        elif not (self.inside and self.inside[0] == "style"):
            self.text.append(data)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.tags]


def evil_report():
    figure = go.Figure(go.Scatter(y=[1, 2], name=EVIL))
    figure.update_layout(meta={"title": EVIL})
    table = Table((EVIL, "n"), [(EVIL, 1.5)], EVIL)
    section = Section(EVIL, EVIL, [Panel({EVIL: figure, "b": figure}, EVIL, EVIL)], [table], [EVIL])
    return figures.report(
        EVIL, [section], subtitle=EVIL, summary=[EVIL], notes=[EVIL], provenance=[table]
    )


def test_html_in_any_field_of_a_report_is_text():
    page = Page(evil_report().html())
    assert "img" not in page.names
    assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]
    # title, h1, subtitle, summary, notes, h2, text, notes, table, option, choice, captions, …
    assert "".join(page.text).count(EVIL) >= 14
    scripts = [attrs for attrs, _ in page.scripts]
    assert len(scripts) == 4
    assert [attrs.get("type") for attrs in scripts].count("application/json") == 2


def test_figures_in_a_page_are_json_that_says_what_was_given():
    page = Page(evil_report().html())
    data = [text for attrs, text in page.scripts if attrs.get("type")]
    assert json.loads(data[0])["data"][0]["name"] == EVIL


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "\u2028", "&lt;"])
def test_json_in_a_script_cannot_end_it(text):
    encoded = script_json({"a": text})
    assert not set("<>&\u2028") & set(encoded)
    assert json.loads(encoded) == {"a": text}


def test_a_page_refers_to_nothing_outside_itself():
    page = Page(figures.plot(with_measures(synthetic_run(3))).html())
    for tag, attrs in page.tags:
        for name in ("src", "href", "data", "action", "poster", "srcset"):
            assert attrs.get(name, "data:").startswith("data:"), (tag, attrs)
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert "http" not in policy


def test_plotly_is_in_a_page_once_and_not_without_figures():
    mark = "plotly.js v"
    many = figures.plot(synthetic_run(3), synthetic_run(3)).html()
    assert many.count(mark) == 1
    none = figures.report("T", [Section("S", "text")]).html()
    assert mark not in none
    assert len(none) < 20_000


def test_headings_go_down_one_level_at_a_time_from_a_single_title():
    page = Page(figures.plot(with_measures(synthetic_run(3))).html())
    levels = [int(name[1]) for name in page.names if name in ("h1", "h2", "h3", "h4")]
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
    assert all(attrs.get("scope") for tag, attrs in page.tags if tag == "th")


def test_tables_show_four_digits_and_a_dash_for_no_number():
    table = Table(("a", "b", "c", "d"), [("x", 0.123456, float("nan"), None)])
    text = figures.report("T", [Section("S", tables=[table])]).html()
    assert ">0.1235<" in text
    assert text.count('title="no number"') == 2
    assert "nan" not in Page(text).text


def test_a_row_of_another_length_than_the_columns_is_refused():
    with pytest.raises(ValueError, match="2 cells under 1 columns"):
        Table(("a",), [("x", 1)])


def test_an_infinite_number_is_shown_as_such():
    table = Table(("a", "b"), [("x", float("inf"))])
    assert ">inf<" in figures.report("T", [Section("S", tables=[table])]).html()


def test_a_report_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("before")
    built = figures.plot(synthetic_run(2))

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("landscape_cli.disk.write_all", fail)
    with pytest.raises(StoreError, match="No space left"):
        built.write(target)
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_a_report_in_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(StoreError, match="could not be written"):
        figures.plot(synthetic_run(2), output=tmp_path / "no" / "report.html")


def test_nothing_to_plot_is_refused():
    with pytest.raises(SpecError, match="no run"):
        figures.plot()


def test_many_checkpoints_and_directions_stay_a_few_megabytes():
    names = ("gradient", "random:0", "random:1", "update", "eigenvector:0")
    empty = len(figures.report("T", [Section("S", figures=[go.Figure()])]).html())
    built = figures.plot(synthetic_run(300, names), synthetic_run(300, names, seed=1))
    assert len(built.html()) - empty < 4e6


def test_what_is_wrong_with_a_run_is_noted_at_the_top():
    run = damaged(damaged(synthetic_run(4), 2, 1), 0, 3)
    run.attributes["notices"] = json.dumps(
        [{"text": "2 parameters unreached", "checkpoints": ["c"]}]
    )
    notes = " ".join(figures.plot(run).notes)
    for part in ("16 of 64 points are not finite", "16 of 64 points are not measured", "unreached"):
        assert part in notes


def test_provenance_has_command_settings_versions_and_hashes():
    text = " ".join(Page(figures.plot(synthetic_run(3)).html()).text)
    for part in ("landscape probe run", "settings: batch_size", "versions: torch", "data_sha256"):
        assert part in text
    assert f"{2:064x}" in text


def test_the_summary_has_the_medians_of_numpy():
    run = synthetic_run(5, noise=0.5)
    table = figures.plot(run, labels=["A"]).sections[0].tables[0]
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["β*"] == pytest.approx(np.median(run["effective_smoothness/beta"]))
    span = run["loss_range/maximum"] - run["loss_range/minimum"]
    assert row["loss range"] == pytest.approx(np.median(span))
    assert (row["run"], row["checkpoints"], row["points"]) == ("A", 5, 80)


def test_the_report_of_a_comparison_leads_with_its_findings(tmp_path):
    a, b = synthetic_run(8), synthetic_run(8, seed=1, curvature=1.0)
    target = tmp_path / "out.html"
    comparison = compare(a, b, labels=["none", "batch"], output=target)
    page = Page(target.read_text())
    text = "".join(page.text)
    assert text.index(comparison.findings()[0]) < text.index("Over training")
    for warning in comparison.warnings():
        assert warning in text
    for contrast in comparison.contrasts():
        assert contrast.verdict in text
