"""Which batches a training sees, and in which order."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from landscape_cli.errors import AdapterError, SpecError
from landscape_cli.training.feed import Feed


class Numbers(Dataset):
    """Dictionaries, collated by the data set's own function."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return {"x": torch.tensor(index)}

    def collate_fn(self, samples):
        return {"x": torch.stack([sample["x"] for sample in samples]), "own": True}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(5.0))


def tensors(samples=10):
    return TensorDataset(torch.arange(samples), torch.arange(samples) * 2)


def epoch(feed, count):
    batches = iter(feed)
    return [next(batches) for _ in range(count)]


def test_an_epoch_has_every_sample_once_and_its_target():
    found = epoch(Feed(tensors(), batch_size=5), 2)
    x = torch.cat([batch[0] for batch in found])
    assert sorted(x.tolist()) == list(range(10))
    assert torch.equal(torch.cat([batch[1] for batch in found]), x * 2)


def test_the_next_epoch_has_another_order():
    found = epoch(Feed(tensors(64), batch_size=64), 2)
    assert not torch.equal(found[0][0], found[1][0])


def test_a_ragged_last_batch_is_left_out_and_a_small_set_is_one_batch():
    assert Feed(tensors(10), batch_size=4).batches_per_epoch == 2
    assert [len(batch[0]) for batch in epoch(Feed(tensors(10), batch_size=4), 4)] == [4] * 4
    assert [len(batch[0]) for batch in epoch(Feed(tensors(3), batch_size=4), 2)] == [3] * 2


def test_the_seed_decides_the_order_and_nothing_else_does():
    def order(seed):
        return [batch[0].tolist() for batch in epoch(Feed(tensors(), batch_size=2, seed=seed), 12)]

    first = order(1)
    torch.rand(3)
    assert first == order(1)
    assert first != order(2)


def test_drawing_leaves_the_random_state_of_the_caller_alone():
    before = torch.get_rng_state()
    epoch(Feed(tensors(), batch_size=2), 12)
    epoch(Feed(Numbers(), batch_size=2), 12)
    epoch(Feed(Stream(), batch_size=2), 12)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_full_batch_is_everything_in_its_order_every_time():
    feed = Feed(tensors(), batch_size=3, full_batch=True)
    assert feed.batches_per_epoch == 1
    for batch in epoch(feed, 3):
        assert batch[0].tolist() == list(range(10))


def test_a_data_set_collates_in_its_own_way():
    batch = epoch(Feed(Numbers(), batch_size=4), 1)[0]
    assert batch["own"]
    assert len(batch["x"]) == 4


def test_a_data_set_that_changes_its_samples_is_asked_for_them():
    class Doubled(TensorDataset):
        def __getitem__(self, index):
            return tuple(tensor * 2 for tensor in super().__getitem__(index))

    batch = epoch(Feed(Doubled(torch.arange(1, 9)), batch_size=8), 1)[0]
    assert sorted(batch[0].tolist()) == list(range(2, 18, 2))


def test_a_stream_yields_samples_and_starts_again():
    feed = Feed(Stream(), batch_size=2)
    assert feed.batches_per_epoch is None
    assert [batch.tolist() for batch in epoch(feed, 4)] == [[0, 1], [2, 3], [4], [0, 1]]


def test_a_list_of_batches_is_taken_in_its_order_again_and_again():
    feed = Feed(["a", "b"], batch_size=99)
    assert feed.batches_per_epoch == 2
    assert epoch(feed, 5) == ["a", "b", "a", "b", "a"]


def test_a_loader_shuffles_by_the_seed():
    def order(seed):
        loader = DataLoader(tensors(), 5, shuffle=True, generator=torch.Generator())
        return [batch[0].tolist() for batch in epoch(Feed(loader, batch_size=99, seed=seed), 2)]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_a_full_batch_of_what_has_no_samples_is_refused():
    with pytest.raises(SpecError, match="full batch"):
        Feed([1, 2], batch_size=1, full_batch=True)


def test_no_samples_and_data_that_raise_are_errors():
    with pytest.raises(AdapterError, match="empty"):
        Feed(tensors(0), batch_size=1)

    class Broken(Numbers):
        def __getitem__(self, index):
            raise KeyError("pixels")

    for full in (False, True):
        with pytest.raises(AdapterError, match="raised an error") as caught:
            epoch(Feed(Broken(), batch_size=2, full_batch=full), 1)
        assert "KeyError" in caught.value.seen
