from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from landscape_cli.errors import LandscapeError, SpecError
from landscape_cli.specs import ComponentSpec, DirectionSpec, ProbeSpec, StepGrid, read_config


@pytest.mark.parametrize(
    ("text", "adapter", "target", "options"),
    [
        ("sample:vgg?width=8&norm=batch", "sample", "vgg", {"width": 8, "norm": "batch"}),
        ("my/net.py:build?depth=3", "file", "my/net.py:build", {"depth": 3}),
        ("npz:data/a.npz", "npz", "data/a.npz", {}),
        ("net.py:build", "file", "net.py:build", {}),
        ("file:net.py:build", "file", "net.py:build", {}),
        (r"C:\code\net.py:build", "file", r"C:\code\net.py:build", {}),
        ("lightning:my/net.py:Net?x=1", "lightning", "my/net.py:Net", {"x": 1}),
        ("hf:folder?name='a'&flag=None", "hf", "folder", {"name": "a", "flag": None}),
        ("a:b?path=x%26y", "a", "b", {"path": "x&y"}),
    ],
)
def test_a_component_is_adapter_target_and_options(text, adapter, target, options) -> None:
    spec = ComponentSpec.parse(text, "model")
    assert (spec.adapter, spec.target, dict(spec.options)) == (adapter, target, options)


@pytest.mark.parametrize("text", ["", "vgg", ":vgg", "sample:", "a:b?=1", "a:b?x", "a:b?x=1&x=2"])
def test_a_malformed_component_is_refused(text) -> None:
    with pytest.raises(SpecError) as caught:
        ComponentSpec.parse(text, "model")
    assert caught.value.hint


def test_steps_are_logarithmic_unless_told_otherwise() -> None:
    np.testing.assert_allclose(StepGrid.parse("0.5:4:4").multiples(), [0.5, 1, 2, 4])
    np.testing.assert_allclose(StepGrid.parse("-1:1:3:lin").multiples(), [-1, 0, 1])


@pytest.mark.parametrize(
    "text",
    [
        "1:1:3",
        "4:1:3",
        "0:4:3",
        "-1:4:3:log",
        "1:2:0",
        "1:2:x",
        "1:2",
        "1:2:3:cubic",
        "nan:2:3",
        "1:inf:3",
        "1:2:3:log:4",
        "1:2:99999999",
    ],
)
def test_steps_that_cannot_be_meant_are_refused(text) -> None:
    with pytest.raises(SpecError):
        StepGrid.parse(text)


def test_directions_have_one_label_per_draw() -> None:
    assert DirectionSpec.parse("random:2").labels() == ("random:0", "random:1")
    assert DirectionSpec.parse("eigenvector:0").labels() == ("eigenvector:0",)
    assert DirectionSpec.of_label("random:0").argument == "0"
    assert not DirectionSpec.parse("toward:a/b.pt").scaled


@pytest.mark.parametrize("text", ["up", "random", "random:0", "random:x", "toward:", "gradient:1"])
def test_unknown_directions_are_refused(text) -> None:
    with pytest.raises(SpecError, match="no such direction"):
        DirectionSpec.parse(text)


MINIMAL = {"checkpoints": ["a.pt"], "model": "sample:vgg", "data": "npz:a.npz"}


def test_settings_go_through_json_and_back() -> None:
    spec = ProbeSpec.from_mapping({**MINIMAL, "lr": 1, "directions": ["gradient", "random:2"]})
    assert ProbeSpec.from_json(spec.to_json()) == spec
    assert spec.lr == 1.0
    assert spec.direction_labels() == ("gradient", "random:0", "random:1")


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": 0}, {"batches": 0}, {"seed": -1}, {"workers": 0}, {"chunk": 0}, {"lr": 0},
        {"lr": float("nan")}, {"norm_mode": "eval"}, {"dtype": "float16"}, {"engine": "spark"},
        {"loss": "hinge"}, {"batch_size": "8"}, {"lr": "x"}, {"directions": 3}, {"nonsense": 1},
        {"allow_tf32": 1}, {"model": ""}, {"checkpoints": []},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused_with_what_was_seen(change) -> None:
    with pytest.raises(SpecError) as caught:
        ProbeSpec.from_mapping({**MINIMAL, **change})
    assert caught.value.seen


def test_a_config_file_may_use_dashes(tmp_path: Path) -> None:
    path = tmp_path / "probe.toml"
    path.write_text('batch-size = 64\nnorm_mode = "frozen"\n')
    assert read_config(path) == {"batch_size": 64, "norm_mode": "frozen"}
    path.write_text("batch-size = = 64")
    with pytest.raises(SpecError, match="not TOML"):
        read_config(path)
    with pytest.raises(SpecError, match="cannot be read"):
        read_config(tmp_path / "none.toml")


@given(st.text(max_size=60))
def test_no_text_breaks_a_parser(text) -> None:
    for parse in (
        lambda t: ComponentSpec.parse(t, "model"), StepGrid.parse, DirectionSpec.parse,
        ProbeSpec.from_json,
    ):  # fmt: skip
        try:
            parse(text)
        except LandscapeError as error:
            assert error.exit_code == 2


def test_settings_that_say_where_are_the_defaults_here_and_the_others_stay() -> None:
    spec = ProbeSpec(
        ("x",), "a:b", "c:d", engine="ray", workers=3, gpus_per_worker=0.5, address="h:1", seed=7
    )
    assert spec.here() == ProbeSpec(("x",), "a:b", "c:d", seed=7)
    spec = ProbeSpec(("x",), "a:b", "c:d", device="cuda:1,cuda:0", workers=4)
    assert spec.here() == ProbeSpec(("x",), "a:b", "c:d", device="cuda:1")


@pytest.mark.parametrize(
    ("settings", "devices", "processes"),
    [
        ({}, ("auto",), 1),
        ({"device": "cuda", "workers": 3}, ("cuda",), 3),
        ({"device": "cuda:0, cuda:1"}, ("cuda:0", "cuda:1"), 2),
        ({"device": "cpu,cpu", "workers": 4}, ("cpu", "cpu"), 4),
        ({"device": "cuda:0,cuda:0"}, ("cuda:0", "cuda:0"), 2),
    ],
)
def test_one_process_measures_for_each_device_or_as_many_as_are_asked_for(
    settings, devices, processes
) -> None:
    spec = ProbeSpec.from_mapping({**MINIMAL, **settings})
    assert (spec.devices, spec.processes) == (devices, processes)
    assert ProbeSpec.from_json(spec.to_json()) == spec
