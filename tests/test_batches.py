from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from landscape_cli import batches, randomness
from landscape_cli.errors import AdapterError, MeasurementError


def numbers(count: int = 10) -> TensorDataset:
    return TensorDataset(torch.arange(count).float().unsqueeze(1), torch.arange(count))


class Two(nn.Module):
    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return ids


@dataclass
class Pair:
    input: Tensor
    target: Tensor


def test_a_data_set_is_sampled_without_replacement_and_repeats_with_the_seed() -> None:
    first = batches.draw(numbers(), 3, 3, seed=1)
    again = batches.draw(numbers(), 3, 3, seed=1)
    other = batches.draw(numbers(), 3, 3, seed=2)
    assert len(set(first.indices)) == 9
    assert first.indices == again.indices != other.indices
    assert first.indices_hash() == again.indices_hash() != other.indices_hash()
    assert first.content_hash() == again.content_hash() != other.content_hash()
    assert [len(y) for _, y in first.batches] == [3, 3, 3]


def test_a_short_data_set_gives_a_ragged_last_batch_and_says_so() -> None:
    sample = batches.draw(numbers(10), 4, 4, seed=0)
    assert [len(y) for _, y in sample.batches] == [4, 4, 2]
    assert sample.notices == ("the data has 10 samples, 16 were asked for",)


def test_lists_and_loaders_are_batches_in_their_order() -> None:
    given = [(torch.ones(2, 1), torch.zeros(2)), (torch.zeros(3, 1), torch.ones(3))]
    assert batches.draw(given, 64, 1, seed=0).batches[0] is given[0]
    loader = DataLoader(numbers(), batch_size=5, shuffle=True)
    first, again = (batches.draw(loader, 1, 2, seed=3).batches for _ in range(2))
    assert all(torch.equal(a[1], b[1]) for a, b in zip(first, again, strict=True))


def test_a_loader_with_its_own_generator_repeats() -> None:
    loader = DataLoader(numbers(), batch_size=5, shuffle=True, generator=torch.Generator())
    first, again = (batches.draw(loader, 1, 1, seed=3).batches[0][1] for _ in range(2))
    assert torch.equal(first, again)


class Stream(IterableDataset):
    def __iter__(self):
        count = 0
        while True:
            yield torch.tensor([float(count)]), count
            count += 1


def test_an_endless_stream_yields_samples() -> None:
    sample = batches.draw(Stream(), 4, 2, seed=0)
    assert [y.tolist() for _, y in sample.batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_data_set_may_collate_its_own_batches() -> None:
    data = numbers()
    data.collate_fn = lambda samples: {"count": torch.tensor([len(samples)])}
    assert batches.draw(data, 4, 1, seed=0).batches[0]["count"].tolist() == [4]


def test_drawing_leaves_the_callers_random_state() -> None:
    state = randomness.capture()
    batches.draw(DataLoader(numbers(), shuffle=True), 2, 2, seed=0)
    assert randomness.capture() == state


def test_data_that_is_empty_or_raises_is_refused() -> None:
    with pytest.raises(AdapterError, match="empty"):
        batches.draw([], 4, 1, seed=0)

    class Broken(TensorDataset):
        def __getitem__(self, index):
            raise OSError("disk gone")

        __getitems__ = None

    with pytest.raises(AdapterError) as caught:
        batches.draw(Broken(torch.zeros(3)), 2, 1, seed=0)
    assert "OSError: disk gone" in caught.value.seen


X, Y = torch.ones(3, 2), torch.zeros(3).long()


@pytest.mark.parametrize(
    ("raw", "model"),
    [
        ((X, Y), nn.Identity()),
        ([X, Y], nn.Identity()),
        ({"image": X, "label": Y}, nn.Identity()),
        (UserDict(x=X, targets=Y), nn.Identity()),
        (Pair(X, Y), nn.Identity()),
        ({"ids": X, "mask": None, "labels": Y}, Two()),
        (({"ids": X}, Y), Two()),
        (((X, None), Y), Two()),
        ((X, None, Y), Two()),
    ],
)
def test_input_and_target_are_found_in_every_form_of_batch(raw, model) -> None:
    batch = batches.Batch.split(raw, model)
    assert batch.target is Y
    assert batch.size == 3
    first, *_ = (*batch.inputs, *batch.keywords.values())
    assert first is X


def test_a_model_that_computes_its_own_loss_gets_everything() -> None:
    class Own(nn.Module):
        def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
            return ids.sum() + labels.sum()

    batch = batches.Batch.split({"ids": X, "labels": Y}, Own(), whole=True)
    assert batch.keywords == {"ids": X, "labels": Y}
    assert batches.Batch.split((X, Y), Two(), whole=True).inputs == (X, Y)


def test_a_batch_that_the_model_cannot_take_is_refused() -> None:
    with pytest.raises(MeasurementError, match="does not take what a batch holds"):
        batches.Batch.split({"a": X, "b": X, "label": Y}, nn.Identity())


def test_placing_changes_floats_and_leaves_integers() -> None:
    sample = batches.draw([({"ids": Y, "mask": X}, Y)], 3, 1, seed=0)
    (batch,) = batches.prepare(
        sample, Two(), device=torch.device("cpu"), dtype=torch.float64, whole=False
    )
    assert batch.keywords["ids"].dtype == torch.int64
    assert batch.keywords["mask"].dtype == torch.float64


def test_a_permuted_batch_moves_inputs_and_targets_together() -> None:
    x = torch.arange(4.0).unsqueeze(1)
    batch = batches.Batch.split((x, torch.arange(4)), nn.Identity())
    assert batch.has_order
    other = batch.permuted(torch.tensor([3, 1, 0, 2]), nn.Identity(), whole=False)
    assert other.target.tolist() == [3, 1, 0, 2]
    assert torch.equal(other.inputs[0][:, 0].long(), other.target)


def test_a_batch_with_other_shapes_in_it_has_no_order() -> None:
    batch = batches.Batch.split((torch.ones(4, 1), torch.arange(2), torch.arange(4)), Two())
    assert not batch.has_order
    assert not batches.Batch.split(("no tensor",), nn.Identity()).has_order
