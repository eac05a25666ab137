"""Loss and accuracy over held-out data against whole-batch arithmetic."""

import pytest
import torch
from cases import Dropping, classification_data, regression_data
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from landscape_cli import losses, randomness
from landscape_cli.training.evaluation import evaluate


def test_batches_add_up_to_the_whole_and_dropout_is_off():
    model, data = Dropping().train(), classification_data(23)
    x, y = data.tensors
    before = randomness.capture()
    score = evaluate(model, data, losses.resolve("cross-entropy"), batch_size=5)
    assert randomness.capture() == before
    assert model.training
    scores = model.eval()(x).detach()
    assert score.loss == pytest.approx(float(functional.cross_entropy(scores, y)), rel=1e-6)
    assert score.accuracy == float((scores.argmax(1) == y).double().mean())


def test_regression_has_no_accuracy_and_a_summed_loss_is_a_sum():
    data = regression_data(17)
    model = nn.Linear(4, 1).double()
    x, y = data.tensors
    residual = (model(x).squeeze(1) - y).detach()
    mean = evaluate(model, data, losses.resolve("mse"), batch_size=4)
    total = evaluate(model, data, losses.resolve("sse"), batch_size=4)
    assert mean.accuracy is None
    assert mean.loss == pytest.approx(float(residual.square().mean()), rel=1e-12)
    assert total.loss == pytest.approx(float(residual.square().sum()), rel=1e-12)


def test_tokens_count_one_by_one_and_ignored_ones_do_not():
    embedding = nn.Embedding(5, 5)  # scores of shape (batch, tokens, classes)
    tokens = torch.tensor([[0, 1, 2], [3, 4, 0]])
    labels = torch.tensor([[1, -100, 2], [-100, -100, 0]])
    score = evaluate(embedding, TensorDataset(tokens, labels), losses.resolve("cross-entropy"))
    scores = embedding(tokens).detach()
    kept = labels != -100
    assert score.accuracy == float((scores.argmax(-1) == labels)[kept].double().mean())
    wanted = functional.cross_entropy(scores[kept], labels[kept])
    assert score.loss == pytest.approx(float(wanted), rel=1e-6)
