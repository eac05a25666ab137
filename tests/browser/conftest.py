"""A headless Chromium, shared by the tests of reports; without one they are skipped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """A browser context with a profile of its own, 1280 pixels wide."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium on the path")
    with sync_api.sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("profile")),
            executable_path=path,
            headless=True,
            args=FLAGS,
            viewport={"width": 1280, "height": 900},
        )
        yield context
        context.close()


class Opened:
    """A report in the browser, with everything it said and asked for."""

    def __init__(self, context, path: Path) -> None:
        self.path = path
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page = context.new_page()
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.messages.append("dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn]", timeout=60_000, state="attached")

    def _note(self, message) -> None:
        # Reading a WebGL picture back makes Chromium advise on speed: that is no fault.
        if "willReadFrequently" not in message.text and "GPU stall" not in message.text:
            self.messages.append(f"{message.type}: {message.text}")

    def ask(self, script: str):
        return self.page.evaluate(script)


@pytest.fixture
def open_report(chromium, tmp_path):
    """Write a report and open it from the disk."""
    opened: list[Opened] = []

    def open_it(report) -> Opened:
        path = tmp_path / "a <b>report & more.html"
        report.write(path)
        opened.append(Opened(chromium, path))
        return opened[-1]

    yield open_it
    for item in opened:
        item.page.close()
