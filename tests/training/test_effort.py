"""How many threads a training takes: a rule that gives the same answer every time."""

import pytest
import torch
from torch import nn

from landscape_cli.batches import Batch
from landscape_cli.training import effort


def batch(*shape):
    return Batch.split((torch.zeros(shape), torch.zeros(shape[0])), nn.Linear(1, 1))


@pytest.fixture
def four_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)


def test_operations_of_a_dense_layer_are_two_per_weight_and_sample():
    model = nn.Sequential(nn.Linear(30, 20), nn.Dropout(), nn.BatchNorm1d(20)).train()
    before = model[2].running_mean.clone()
    assert effort.forward_operations(model, batch(7, 30)) == 2 * 30 * 20 * 7
    assert model.training
    assert torch.equal(model[2].running_mean, before)


def test_a_small_step_takes_one_thread_and_a_large_one_all(four_threads):
    assert effort.suitable_threads(nn.Linear(30, 20), batch(7, 30)) == 1
    assert effort.suitable_threads(nn.Linear(3000, 2000), batch(100, 3000)) == 4


def test_a_number_of_the_users_is_taken(four_threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert effort.suitable_threads(nn.Linear(3, 2), batch(7, 3)) == 4
