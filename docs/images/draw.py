"""Draw the pictures of the docs from the demo's report: ``make demo``, then run this file.

Needs the Python package playwright and a Chromium browser.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
REPORT = HERE.parents[1] / "demo-output" / "comparison.html"
PICTURES = {"bands.png": "#figure-1", "smoothness.png": "#figure-2"}


def main() -> None:
    """Take a picture of each figure."""
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if not REPORT.exists() or browser_path is None:
        sys.exit("run `make demo` first, and install Chromium")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        page.goto(REPORT.as_uri())
        page.wait_for_selector(f"{PICTURES['smoothness.png']} .main-svg")
        for name, selector in PICTURES.items():
            page.locator(f"{selector} .plot").screenshot(path=HERE / name)
        browser.close()


if __name__ == "__main__":
    main()
