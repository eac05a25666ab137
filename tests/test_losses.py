from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from landscape_cli import losses
from landscape_cli.batches import Batch
from landscape_cli.errors import MeasurementError, SpecError


def batch_of(output: Tensor, target: Tensor) -> Batch:
    return Batch((output, target), (output,), {}, target, len(output))


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


CASES = [
    ("cross-entropy", drawn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2]), F.cross_entropy),
    ("nll", drawn(6, 3).log_softmax(1), torch.tensor([0, 1, 2, 0, 1, 2]), F.nll_loss),
    ("cross-entropy", drawn(6, 3), drawn(6, 3).softmax(1), F.cross_entropy),
    ("cross-entropy", drawn(2, 3, 4, 4), torch.zeros(2, 4, 4).long(), F.cross_entropy),
    ("mse", drawn(6, 2), drawn(6, 2) + 1, F.mse_loss),
    ("l1", drawn(6, 2), drawn(6, 2) + 1, F.l1_loss),
    ("bce", drawn(6, 1), torch.ones(6, 1), F.binary_cross_entropy_with_logits),
    ("sse", drawn(6, 2), drawn(6, 2) + 1, lambda o, t: F.mse_loss(o, t, reduction="sum")),
]


@pytest.mark.parametrize(("name", "output", "target", "reference"), CASES)
def test_a_named_loss_is_torchs_own(name, output, target, reference) -> None:
    loss = losses.resolve(name)
    batch = batch_of(output, target)
    divisor = loss.terms(batch) or 1
    value = loss.total(output, batch) / divisor
    assert value.dtype == torch.float64
    assert float(value) == pytest.approx(float(reference(output, target)), rel=1e-6)


def test_ignored_targets_do_not_count() -> None:
    output, target = drawn(4, 3), torch.tensor([0, -100, 2, -100])
    loss = losses.resolve("cross-entropy")
    batch = batch_of(output, target)
    assert loss.terms(batch) == 2
    value = float(loss.total(output, batch)) / 2
    assert value == pytest.approx(float(F.cross_entropy(output, target)))


def test_language_model_outputs_have_their_classes_last() -> None:
    output, target = drawn(2, 5, 7), torch.arange(10).reshape(2, 5) % 7
    loss = losses.resolve("cross-entropy")
    batch = batch_of(output, target)
    assert loss.terms(batch) == 10
    expected = F.cross_entropy(output.flatten(0, 1), target.flatten(), reduction="sum")
    assert float(loss.total(output, batch)) == pytest.approx(float(expected), rel=1e-6)


def test_predictions_of_shape_n_by_1_meet_targets_of_shape_n() -> None:
    output, target = drawn(6, 1), drawn(6) + 1
    loss = losses.resolve("mse")
    expected = F.mse_loss(output[:, 0], target)
    assert float(loss.total(output, batch_of(output, target)) / 6) == pytest.approx(float(expected))


@dataclass
class Output:
    loss: Tensor
    logits: Tensor


class TinyCausalLM(nn.Module):
    """Its name says that it shifts its labels."""


@pytest.mark.parametrize(
    "output",
    [
        torch.tensor(0.5),
        {"loss": torch.tensor(0.5)},
        (torch.tensor(0.5), None),
        Output(torch.tensor(0.5), torch.zeros(1)),
    ],
)
def test_a_model_returns_its_own_loss_in_many_forms(output) -> None:
    loss = losses.resolve("model")
    batch = batch_of(drawn(4, 2), torch.zeros(4))
    assert float(loss.total(output, batch)) == 0.5 * 4


def test_the_loss_of_a_language_model_is_weighted_by_the_tokens_it_predicts() -> None:
    labels = torch.tensor([[1, 2, 3, -100], [1, -100, -100, -100]])
    batch = Batch({}, (), {"labels": labels}, labels, 2)
    assert losses.resolve("model", TinyCausalLM()).terms(batch) == 2
    assert losses.resolve("model", nn.Linear(1, 1)).terms(batch) == 4


@pytest.mark.parametrize(
    ("name", "output", "target", "message"),
    [
        ("mse", drawn(6, 2), drawn(6, 3), "do not fit together"),
        ("mse", drawn(6, 1), drawn(1, 6), "do not fit together"),
        ("cross-entropy", drawn(6, 3), torch.full((6,), 7), "do not fit together"),
        ("cross-entropy", drawn(8, 3), torch.zeros(2, 4).long(), "flattened over tokens"),
    ],
)
def test_what_does_not_fit_is_refused(name, output, target, message) -> None:
    with pytest.raises(MeasurementError, match=message):
        losses.resolve(name).total(output, batch_of(output, target))


def test_a_loss_that_is_not_a_scalar_is_refused() -> None:
    with pytest.raises(MeasurementError, match="not a scalar"):
        losses.resolve("model").total(drawn(4, 2), batch_of(drawn(4, 2), torch.zeros(4)))


def test_an_output_without_a_prediction_is_refused() -> None:
    with pytest.raises(MeasurementError, match="not a prediction"):
        losses.logits({"scores": torch.zeros(2)})


def test_an_unknown_loss_names_those_there_are() -> None:
    with pytest.raises(SpecError) as caught:
        losses.resolve("hinge")
    assert "cross-entropy" in str(caught.value)
