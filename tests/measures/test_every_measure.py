"""What every measure promises; a new one is tested by being listed in the entry points."""

from __future__ import annotations

import warnings
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import cases
import numpy as np
import pytest
import torch
from sites import Raws, surveyed, swept, taken
from torch import nn

import landscape_cli as landscape
from landscape_cli.measures.contract import SiteMeasure, SweepMeasure

MEASURES = sorted(
    entry.name
    for entry in entry_points(group="landscape_cli.measures")
    if entry.value.startswith("landscape_cli.")
)
OPTIONS: dict[str, dict[str, int]] = {
    "hessian_spectrum": {"probes": 2, "steps": 4, "k": 2},
    "learning_rate_range": {"iterations": 3},
}
NETS = {
    "dense": (cases.Tanh3, lambda: cases.vector_data(9)),
    "dropout": (cases.Dropping, lambda: cases.vector_data(9)),
    "convolutional": (cases.SmallConvNet, lambda: cases.image_data(5, 6)),
    "batch norm": (
        cases.SmallBatchNormNet,
        lambda: cases.image_data(8, 4) + cases.image_data(5, 4, seed=8),
    ),
    "awkward": (cases.Awkward, lambda: [cases.awkward_data().tensors]),
}


def built(name: str) -> Any:
    (entry,) = (e for e in entry_points(group="landscape_cli.measures") if e.name == name)
    return entry.load()(**OPTIONS.get(name, {}))


def measured(name: str, model: nn.Module, raws: Raws, **options: Any) -> dict[str, np.ndarray]:
    """Take a measure at a site, nothing where it refuses; `surveyed` checks what it leaves."""
    measure = built(name)
    with surveyed(model, raws, **options) as site:
        if measure.refusal(site):
            assert "\n" not in measure.refusal(site)
            return {}
        return taken(measure, site) if isinstance(measure, SiteMeasure) else swept(measure, site)


def test_all_measures_of_the_tool_are_found() -> None:
    assert {"covariate_shift", "activations", "conditioning", "hessian_spectrum"} <= set(MEASURES)


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_has_the_name_it_is_registered_under_and_describes_its_fields(name: str) -> None:
    measure = built(name)
    assert measure.name == name
    assert isinstance(measure, SiteMeasure | SweepMeasure)
    own = {dim for field in measure.fields.values() for dim in field.dims}
    for dim in own - {"checkpoint", "direction", "step"}:
        assert measure.fields[dim].dims == (dim,), f"{dim} has no labels"
    assert all(field.meaning for field in measure.fields.values())


@pytest.mark.parametrize("mode", ["batch", "running", "frozen"])
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("name", MEASURES)
def test_it_repeats_bit_for_bit_and_leaves_the_model_as_it_was(
    name: str, net: str, mode: str
) -> None:
    build, data = NETS[net]
    first = measured(name, build().double(), data(), norm_mode=mode)
    again = measured(name, build().double(), data(), norm_mode=mode)
    for field, values in first.items():
        np.testing.assert_array_equal(values, again[field], err_msg=field)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("name", MEASURES)
def test_it_can_be_taken_in_float32(name: str, net: str) -> None:
    build, data = NETS[net]
    found = measured(name, build().float(), data())
    assert bool(found) or name == "normalisation_bounds"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("net", [net for net in NETS if net != "dropout"])  # masks differ
@pytest.mark.parametrize("name", MEASURES)
def test_a_gpu_gives_the_numbers_of_a_cpu(name: str, net: str) -> None:
    build, data = NETS[net]
    expected = measured(name, build().double(), data())
    found = measured(name, build().double().cuda(), data())
    for field, values in expected.items():
        if values.dtype.kind == "U":
            np.testing.assert_array_equal(found[field], values)
        elif field != "nonzero":  # κ of a rank-deficient Hessian hangs on rounding
            np.testing.assert_allclose(found[field], values, rtol=1e-5, atol=1e-9, err_msg=field)


def test_a_probe_takes_all_of_them_and_says_which_do_not_apply(tmp_path: Path) -> None:
    x, y = cases.image_data(16, 4)[0]
    data = torch.utils.data.TensorDataset(x, y)
    texts = [
        name + "?" + "&".join(f"{key}={value}" for key, value in OPTIONS.get(name, {}).items())
        for name in MEASURES
    ]
    settings: dict[str, Any] = {"lr": 0.1, "steps": "0.5:2:3", "batch_size": 8, "batches": 2}
    directions = ("gradient", "eigenvector:0", "eigenvector:1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = landscape.probe(
            model=cases.SmallBatchNormNet(),
            data=data,
            measures=texts,
            directions=directions,
            norm_mode="frozen",
            output=tmp_path / "run.h5",
            **settings,
        )
        run = landscape.open_run(tmp_path / "run.h5")
    assert run.complete
    assert set(run.groups()) >= set(MEASURES) - {"normalisation_bounds"}
    assert "normalisation_bounds: the theorems" in run.attributes["notices"]
    top = run["hessian_spectrum/eigenvalue"][0]
    np.testing.assert_allclose(run["effective_smoothness/limit"][0, 1:], np.abs(top), rtol=1e-6)
