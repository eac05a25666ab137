"""The template in the docs: extracted from the page, installed, found by its entry points, run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "write-an-adapter.md"
FILES = ("pyproject.toml", "landscape_waves.py", "test_landscape_waves.py")
LONGEST = 80


def extract() -> dict[str, str]:
    blocks = re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    return dict(blocks)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write the files of the page, build them, and install them into a folder of their own."""
    pytest.importorskip("hatchling", reason="hatchling, which builds the template, is missing")
    source, target = (tmp_path_factory.mktemp(name) for name in ("source", "site"))
    for name, text in extract().items():
        (source / name).write_text(text)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(target), str(source)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return source, target


def run(code: str, site: Path) -> str:
    """Run Python with the installed template on its path."""
    prefix = f"import sys; sys.path.insert(0, {str(site)!r})\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", prefix + code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_page_has_the_files_of_a_distribution_in_under_80_lines() -> None:
    files = extract()
    assert tuple(files) == FILES
    assert sum(len(text.splitlines()) for text in files.values()) < LONGEST


def test_its_own_tests_pass(installed: tuple[Path, Path]) -> None:
    source, site = installed
    code = (
        f"import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', {str(source)!r}]))"
    )
    assert "1 passed" in run(code, site)


def test_it_is_found_built_and_probed_by_its_specs(installed: tuple[Path, Path]) -> None:
    _, site = installed
    code = """
import torch, landscape_cli as landscape
from landscape_cli.adapters import registry
from landscape_cli.adapters.building import build_data, build_model

assert registry.models().find("waves").distribution == "landscape-waves"
model = build_model("waves:mlp?width=4")
run = landscape.probe(
    model=model, data=build_data("waves:sines?samples=16"), loss="mse", lr=0.1, steps="1:2:2"
)
assert run.complete
print(model[0].out_features, run["loss"].shape)
"""
    assert run(code, site) == "4 (1, 1, 2)"


def test_its_refusals_reach_the_user(installed: tuple[Path, Path]) -> None:
    _, site = installed
    code = """
from landscape_cli.adapters.building import build_model
from landscape_cli.errors import AdapterError

for spec in ("waves:mpl", "waves:mlp?widht=3"):
    try:
        build_model(spec)
    except AdapterError as error:
        print(error.what)
"""
    lines = run(code, site).splitlines()
    assert lines == ["there is no such network", "waves:mlp does not take these options"]
