"""A data set in memory."""

import pytest
import torch
from torch.utils.data import DataLoader

from sample_models.data.samples import Samples

INPUTS = torch.arange(12, dtype=torch.uint8).reshape(6, 2)
TARGETS = torch.arange(6)


def test_samples_one_by_one_are_those_of_a_gather():
    data = Samples(INPUTS, TARGETS, lambda pixels: pixels.float() / 2)
    together = data.__getitems__([4, 0, 4])
    for (values, label), index in zip(together, [4, 0, 4], strict=True):
        assert torch.equal(values, INPUTS[index] / 2)
        assert label == index
        assert torch.equal(data[index][0], values)


def test_only_what_is_asked_for_is_converted():
    seen = []

    def convert(pixels):
        seen.append(len(pixels))
        return pixels.float()

    data = Samples(INPUTS, TARGETS, convert)
    data.__getitems__([1, 2])
    assert seen == [2]


def test_a_loader_yields_batches():
    batches = list(DataLoader(Samples(INPUTS, TARGETS), batch_size=4))
    assert [tuple(values.shape) for values, _ in batches] == [(4, 2), (2, 2)]
    assert torch.equal(torch.cat([labels for _, labels in batches]), TARGETS)


def test_it_can_be_iterated_to_its_end_and_counted_from_it():
    data = Samples(INPUTS, TARGETS)
    assert len(list(data)) == len(data) == 6
    assert data[-1][1] == 5
    for outside in (6, -7):
        with pytest.raises(IndexError):
            data[outside]


def test_inputs_without_their_targets_are_refused():
    with pytest.raises(ValueError, match="6 inputs and 5 targets"):
        Samples(INPUTS, TARGETS[:5])
