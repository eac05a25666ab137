"""From specs to models and data, and what is said of those that cannot be built."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from landscape_cli.adapters.building import build_data, build_model, is_data
from landscape_cli.errors import AdapterError, SpecError
from landscape_cli.specs import ComponentSpec

CODE = """
from torch import nn

def make(width=3, *, depth: int):
    return nn.Linear(width, depth)

def anything(**options):
    return nn.Linear(1, 1)

def crash(depth=1):
    return nn.Linear(1, depth)(None)

def stop():
    raise SystemExit("bye")

def own():
    from landscape_cli.errors import AdapterError
    raise AdapterError("the moon is full", seen="tonight", hint="wait")

def pair():
    return nn.Linear(1, 1), 5

def a_class():
    return nn.Linear

def nothing():
    pass

def batches():
    return [(1, 2)]

def text():
    return "batches"
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "code.py"
    path.write_text(CODE)
    return path


def test_a_model_is_built_from_a_spec_and_from_its_parsed_form(code: Path) -> None:
    text = f"{code}:make?depth=2"
    for spec in (text, ComponentSpec.parse(text, "model")):
        model = build_model(spec)
        assert isinstance(model, nn.Linear)
        assert (model.in_features, model.out_features) == (3, 2)


def test_a_sample_model_and_sample_data_are_built() -> None:
    assert isinstance(build_model("sample:mlp?in_features=4&hidden=8&classes=2"), nn.Module)
    assert isinstance(build_data("sample:gaussian?samples=10"), Dataset)


@pytest.mark.parametrize(
    ("spec", "what", "seen", "hint"),
    [
        ("make?depth=2&wdth=3", "does not take these options", "'wdth'", "it takes width, depth"),
        ("make", "does not take these options", "'depth'", "it takes width, depth"),
        ("nothing?x=1", "does not take these options", "'x'", "it takes no options"),
        ("crash", "raised an error", "code.py line 11", "--debug"),
        ("stop", "raised an error", "SystemExit: bye", "--debug"),
        ("own", "the moon is full", "tonight", "wait"),
        ("pair", "did not return a model", "a tuple", "nn.Module"),
        ("a_class", "did not return a model", "the class Linear, not an instance", "nn.Module"),
        ("nothing", "did not return a model", "a NoneType", "nn.Module"),
    ],
)
def test_what_is_wrong_with_a_model_is_told(
    code: Path, spec: str, what: str, seen: str, hint: str
) -> None:
    with pytest.raises(AdapterError) as caught:
        build_model(f"{code}:{spec}")
    assert what in caught.value.what
    assert seen in caught.value.seen
    assert hint in caught.value.hint


def test_a_factory_that_takes_anything_is_given_anything(code: Path) -> None:
    assert isinstance(build_model(f"{code}:anything?a=1&b=2"), nn.Linear)


@pytest.mark.parametrize("name", ["text", "make?depth=2", "nothing", "a_class"])
def test_what_is_not_data_is_refused(code: Path, name: str) -> None:
    with pytest.raises(AdapterError, match="did not return data"):
        build_data(f"{code}:{name}")


def test_a_list_of_batches_is_data(code: Path) -> None:
    assert build_data(f"{code}:batches") == [(1, 2)]


def test_data_sets_loaders_and_iterables_are_data_and_the_rest_is_not() -> None:
    samples = TensorDataset(torch.zeros(2, 1))
    for value in (samples, DataLoader(samples), [samples[0]], iter([samples[0]])):
        assert is_data(value), value
    for value in ("text", b"bytes", {"x": 1}, torch.zeros(3), nn.Linear(1, 1), Dataset, 5, None):
        assert not is_data(value), value


@pytest.mark.parametrize("spec", ["", "sample", "sample:", ":vgg", "sample:vgg?width"])
def test_a_malformed_spec_is_wrong_usage(spec: str) -> None:
    with pytest.raises(SpecError):
        build_model(spec)


def test_an_unknown_adapter_is_wrong_usage() -> None:
    with pytest.raises(SpecError, match="no data adapter is named 'nowhere'"):
        build_data("nowhere:digits")
