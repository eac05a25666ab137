"""The checks for plugin authors: the built-ins pass them, and every fault is caught."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from landscape_cli.adapters.conformance import (
    ConformanceError,
    check_data_adapter,
    check_model_adapter,
)
from landscape_cli.errors import AdapterError
from sample_models.adapter import build_data, build_model

BATCH = (torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))


def refuse(target: str) -> None:
    if target != "good":
        raise AdapterError("unknown", seen=target, hint="good")


def good_model(target: str, width: int = 4) -> nn.Module:
    refuse(target)
    return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 2))


def good_data(target: str, samples: int = 5) -> TensorDataset:
    refuse(target)
    return TensorDataset(torch.arange(samples), torch.full((samples,), float("nan")))


def test_good_adapters_conform() -> None:
    assert isinstance(check_model_adapter(good_model, "good", BATCH, width=8), nn.Module)
    assert len(check_data_adapter(good_data, "good", samples=6)) == 6


def test_sample_adapters_conform() -> None:
    model_options = {"in_features": 3, "hidden": 8, "classes": 2}
    check_model_adapter(build_model, "mlp", BATCH, **model_options)
    check_data_adapter(build_data, "gaussian", samples=8)


class OwnLoss(nn.Linear):
    def forward(self, x, labels):
        return nn.functional.cross_entropy(super().forward(x), labels)


def test_a_model_that_needs_the_target_conforms() -> None:
    batch = {"x": BATCH[0], "labels": BATCH[1]}
    check_model_adapter(lambda target: refuse(target) or OwnLoss(3, 2), "good", batch)


class Detached(nn.Linear):
    def forward(self, x):
        return super().forward(x).detach()


def growing():
    widths = iter(range(2, 100))
    return lambda target: refuse(target) or nn.Linear(3, next(widths))


def takes_any(target, **options):
    return good_model("good")


def frozen(target):
    return nn.Linear(3, 2).requires_grad_(False)


def key_error(target):
    return {"good": nn.Linear(3, 2)}[target]


def any_option(target, **options):
    return good_model(target)


def value_error(target, **options):
    if options:
        raise ValueError("what?")
    return good_model(target)


@pytest.mark.parametrize(
    ("adapter", "what"),
    [
        (lambda target: 1 / 0, "raised an error for a target that it should know"),
        (lambda target: nn.Linear, "did not return a model"),
        (frozen, "no parameter that trains"),
        (lambda target: nn.Linear(3, 2, device="meta"), "not on the CPU"),
        (growing(), "different tensors"),
        (lambda target: nn.Linear(5, 2), "does not take the batch"),
        (lambda target: Detached(3, 2), "no gradient leads from the output"),
        (takes_any, "an unknown target is not refused"),
        (key_error, "an unknown target is refused with another error"),
        (any_option, "an unknown option is not refused"),
        (value_error, "an unknown option is refused with another error"),
    ],
)
def test_each_fault_of_a_model_adapter_is_told(adapter, what: str) -> None:
    with pytest.raises(ConformanceError, match=what) as caught:
        check_model_adapter(adapter, "good", BATCH)
    assert isinstance(caught.value, AssertionError)
    assert caught.value.seen
    assert caught.value.hint


def random_data(target):
    refuse(target)
    return TensorDataset(torch.randn(5, 2))


@pytest.mark.parametrize(
    ("adapter", "what"),
    [
        (lambda target: "text", "did not return data"),
        (lambda target: [], "the data is empty"),
        (lambda target: [("a", "b")], "no tensors in the data"),
        (random_data, "differs from one opening to the next"),
        (lambda target: [BATCH], "an unknown target is not refused"),
    ],
)
def test_each_fault_of_a_data_adapter_is_told(adapter, what: str) -> None:
    with pytest.raises(ConformanceError, match=what):
        check_data_adapter(adapter, "good")
