"""What the pages show is what happens."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import cases
import numpy as np
import pytest
import torch

import landscape_cli as landscape
from landscape_cli.measures import registered

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_measure_that_the_page_shows_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict = {}
    exec(compile(blocks("docs/add-a-measure.md", "python")[0], "add-a-measure", "exec"), namespace)
    monkeypatch.setattr(registered, "_load", lambda name: namespace["WeightNorm"])
    model = cases.Awkward()
    run = landscape.probe(model=model, data=cases.awkward_data(), lr=0.1, measures=("weight-norm",))
    names = run.labels("weight_norm/parameter")
    assert names[0] == "unused"
    expected = float(model.unused.detach().double().norm())
    assert run["weight_norm/l2"][0, 0] == pytest.approx(expected, rel=1e-12)


def test_the_project_that_the_page_shows_is_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_project.py").write_text(blocks("docs/your-own-model.md", "python")[0])
    x = torch.randn(20, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    torch.save((x, torch.arange(20) % 10), tmp_path / "val.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (config,) = blocks("docs/your-own-model.md", "toml")
    (tmp_path / "probe.toml").write_text(config)
    from landscape_cli.adapters.building import build_model
    from landscape_cli.specs import read_config

    settings = read_config(tmp_path / "probe.toml")
    torch.save(build_model(settings["model"]).state_dict(), "last.pt")
    run = landscape.probe("last.pt", **settings, batch_size=20)
    assert run.complete
    assert len(run.labels("direction")) == 6


def test_xarray_opens_a_run_as_the_page_says(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    path = tmp_path / "run.h5"
    run = landscape.probe(model=cases.Awkward(), data=cases.awkward_data(), lr=0.1, output=path)
    for engine in ("h5netcdf", "netcdf4"):
        pytest.importorskip("h5netcdf" if engine == "h5netcdf" else "netCDF4")
        with xarray.open_datatree(path, engine=engine) as tree:
            beta = tree["effective_smoothness/beta"].sel(direction="gradient")
            np.testing.assert_array_equal(beta, run["effective_smoothness/beta"][:, 0])
            assert tree["loss"].dims == ("checkpoint", "direction", "step")
            assert tree["loss"].attrs["units"] == "loss"
            assert tree.attrs["format"] == "landscape"


def test_the_file_format_page_names_every_variable(tmp_path: Path) -> None:
    run = landscape.probe(model=cases.Awkward(), data=cases.awkward_data(), lr=0.1)
    page = (ROOT / "docs/reference/file-format.md").read_text(encoding="utf-8")
    for path in run:
        assert f"`{path.rsplit('/', 1)[-1]}`" in page, path
