"""Reports in a real browser: drawn, silent, self-contained, nothing cut off, fit for print."""

from __future__ import annotations

import re

import numpy as np
import pytest
from synthetic import changed, damaged, synthetic_run, with_measures

from landscape_cli import figures
from landscape_cli.compare import compare
from landscape_cli.figures import compared

pytestmark = pytest.mark.browser
EVIL = "<b>bold</b><img src=x onerror=alert(1)></script><script>alert(2)</script>"
LONG = "runs/" + "a-very-long-name-" * 12 + "end"


def trajectory(**options):
    saturated = np.zeros((12, 2), np.uint8)
    saturated[3:6] = 1
    run = synthetic_run(12, ("gradient", "random:0"), noise=0.3, **options)
    run = changed(run, effective_smoothness__saturated=saturated)
    return with_measures(damaged(run, 2, slice(4, 6), slice(12, None)))


def one_checkpoint():
    return figures.plot(synthetic_run(1), labels=["one"])


def few_figures():
    return figures.plot(synthetic_run(8), synthetic_run(8, seed=1, curvature=1.0))


def two_runs():
    steep = trajectory(curvature=np.geomspace(1, 500, 12))
    return figures.plot(steep, trajectory(seed=1), labels=["plain", "batch"])


def evil_labels():
    runs = trajectory(), trajectory(seed=1)
    comparison = compare(*runs, labels=[EVIL, LONG])
    return compared.build_report(comparison)


def six_runs():
    runs = [synthetic_run(20, seed=seed, curvature=1.0 + seed) for seed in range(6)]
    return figures.plot(*runs, labels=[f"{LONG}-{index}" for index in range(6)])


def partial():
    run = with_measures(damaged(synthetic_run(6), 0, slice(None)))
    measured = [path for path in run if run[path].dtype.kind == "f" and "/" in path]
    nothing = {
        path.replace("/", "__"): np.full_like(run[path], np.nan)
        for path in measured
        if not path.startswith(("plane/plane_", "activations/bin_edge"))
    }
    return figures.plot(changed(run, **nothing), labels=["nothing"])


def many():
    names = ("gradient", "random:0", "random:1", "update", "eigenvector:0")
    return figures.plot(synthetic_run(300, names), synthetic_run(300, names, seed=1))


REPORTS = {
    build.__name__: build
    for build in (one_checkpoint, two_runs, evil_labels, six_runs, partial, many)
}

BEYOND = """() => {
  const width = document.documentElement.clientWidth;
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const box = node.getBoundingClientRect();
    // Plotly measures text in an invisible drawing of its own, off the page.
    if (node.closest(".scroll, defs, #js-plotly-tester") || !box.width || !box.height) continue;
    if (box.right > width + 0.5 || box.left < -0.5) found.push(node.outerHTML.slice(0, 90));
  }
  return found;
}"""

CUT_OFF = """() => {
  const found = [];
  for (const plot of document.querySelectorAll(".plot")) {
    const frame = plot.getBoundingClientRect();
    for (const text of plot.querySelectorAll("svg.main-svg text")) {
      const box = text.getBoundingClientRect();
      if (!box.width || !text.textContent.trim()) continue;
      if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
          box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        found.push(text.textContent);
    }
  }
  return found;
}"""

OVERLAPS = """() => {
  const found = [];
  for (const plot of document.querySelectorAll(".plot")) {
    const select = ".legendtext, .g-xtitle text, .g-ytitle text, .xtitle, .x2title, .ytitle, " +
      ".y2title, .annotation-text, .slider-label, .xtick text, .ytick text, .cbaxis text";
    const texts = [...new Set(plot.querySelectorAll(select))]
      .map((node) => [node, node.getBoundingClientRect()])
      .filter(([node, box]) => box.width && node.textContent.trim() && node.textContent !== "×");
    texts.forEach(([a, p], i) => texts.slice(i + 1).forEach(([b, q]) => {
      if (a.contains(b) || b.contains(a)) return;
      const turned = (n) => (n.getAttribute("transform") || "").includes("rotate(-3");
      if (turned(a) && turned(b)) return;
      const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (wide > 2 && high > 3) found.push(a.textContent + " | " + b.textContent);
    }));
  }
  return found;
}"""

SMALLEST_TEXT = """() => Math.min(...[...document.querySelectorAll("main *")]
  .filter((node) => [...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim()))
  .filter((node) => node.getBoundingClientRect().width && !node.closest("script, style"))
  .map((node) => parseFloat(getComputedStyle(node).fontSize)))"""


@pytest.fixture(params=REPORTS)
def opened(request, open_report):
    return open_report(REPORTS[request.param]())


def test_a_report_is_drawn_silent_self_contained_and_whole(opened):
    sizes = opened.ask(
        """() => [...document.querySelectorAll(".plot")].map((plot) => {
          const box = plot.querySelector("svg.main-svg, canvas").getBoundingClientRect();
          return [box.width, box.height, plot.querySelectorAll(".xy, .gl-container").length];
        })"""
    )
    assert len(sizes) >= 2
    for width, height, panels in sizes:
        assert width > 900
        assert height > 300
        assert panels > 0
    assert opened.messages == []
    assert [url for url in opened.requests if not url.startswith("data:")] == [opened.path.as_uri()]
    assert opened.ask("document.documentElement.scrollWidth") == 1280
    assert opened.ask(BEYOND) == []
    assert opened.ask(CUT_OFF) == []
    assert opened.ask(OVERLAPS) == []
    assert opened.ask(SMALLEST_TEXT) >= 12


def test_a_report_fits_a_narrow_window(open_report):
    opened = open_report(few_figures())
    opened.page.set_viewport_size({"width": 640, "height": 900})
    opened.page.wait_for_function(
        "[...document.querySelectorAll('.plot svg.main-svg')].every((s) => s.clientWidth <= 640)"
    )
    assert opened.ask("document.documentElement.scrollWidth") == 640


def test_html_in_labels_is_shown_as_text_and_makes_no_element(open_report):
    opened = open_report(evil_labels())
    assert (
        opened.ask("document.querySelectorAll('main img, main b, main a:not(.modebar-btn)').length")
        == 0
    )
    assert opened.ask("document.querySelectorAll('script[src], iframe, object, embed').length") == 0
    assert EVIL in opened.ask("document.body.innerText")
    legends = opened.ask("[...document.querySelectorAll('.legendtext')].map((n) => n.textContent)")
    assert any(text.startswith("<b>bold</b>") for text in legends)
    assert not opened.ask("!!document.querySelector('.legendtext [style*=\"bold\"]')")
    assert opened.messages == []


def test_html_in_labels_is_text_in_hover_boxes_too(open_report):
    opened = open_report(evil_labels())
    layer = opened.page.locator(".plot").nth(1).locator(".nsewdrag").first
    layer.scroll_into_view_if_needed()
    box = layer.bounding_box()
    for share in np.linspace(0.05, 0.95, 19):
        opened.page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] * 0.9)
        opened.page.wait_for_timeout(60)
        if opened.ask("document.querySelectorAll('.hoverlayer .hovertext').length"):
            break
    texts = opened.ask(
        "[...document.querySelectorAll('.hoverlayer text')].map((n) => n.textContent)"
    )
    assert texts
    assert opened.ask("document.querySelectorAll('.hoverlayer a, .hoverlayer img').length") == 0
    assert any("<b>bold</b>" in text or "a-very-long" in text for text in texts)


def test_choosing_another_figure_draws_it(open_report):
    opened = open_report(two_runs())
    before = opened.ask("document.querySelector('.plot').innerHTML")
    opened.page.locator("figure.panel select").first.select_option(index=1)
    opened.page.wait_for_function(
        "(before) => document.querySelector('.plot').innerHTML !== before", arg=before
    )
    selects = opened.page.locator("figure.panel select")
    for place in range(selects.count()):
        selects.nth(place).select_option(index=selects.nth(place).locator("option").count() - 1)
    opened.page.wait_for_timeout(500)
    # Surfaces need WebGL: a browser without it says so in the figure, in words.
    assert [text for text in opened.messages if "webgl" not in text.lower()] == []
    assert opened.ask(CUT_OFF) == []


def test_the_slider_goes_through_the_checkpoints(open_report):
    opened = open_report(few_figures())
    panel = opened.page.locator("figure.panel", has=opened.page.locator(".slider-container"))
    curve = panel.locator(".scatterlayer .trace path.js-line").first
    before = curve.get_attribute("d")
    rail = panel.locator(".slider-rail-touch-rect")
    rail.scroll_into_view_if_needed()
    rail = rail.bounding_box()
    opened.page.mouse.click(rail["x"] + 5, rail["y"] + rail["height"] / 2)
    opened.page.wait_for_timeout(800)
    assert panel.locator(".scatterlayer .trace path.js-line").first.get_attribute("d") != before


def test_a_report_prints_with_every_figure_inside_the_page(open_report, tmp_path):
    opened = open_report(two_runs())
    opened.page.emulate_media(media="print")
    # A4 less margins of 14 mm, in CSS pixels.
    opened.page.set_viewport_size({"width": 688, "height": 1000})
    opened.ask("window.dispatchEvent(new Event('beforeprint'))")
    opened.page.wait_for_timeout(1500)
    assert opened.ask(BEYOND) == []
    assert opened.ask(CUT_OFF) == []
    target = tmp_path / "report.pdf"
    opened.page.pdf(path=str(target), format="A4")
    pages = len(re.findall(rb"/Type\s*/Page\b", target.read_bytes()))
    assert 3 <= pages <= 30
