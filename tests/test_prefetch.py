"""Batches that stay with the host are the same batches, and no more than two leave it at once."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import landscape_cli as landscape
from landscape_cli import batches, losses, prefetch
from landscape_cli.batches import Batch
from landscape_cli.engine.graph import Graph
from landscape_cli.engine.stacked import describe_chain
from landscape_cli.engine.strategy import Line
from landscape_cli.objective import Objective
from landscape_cli.precision import in_float64
from landscape_cli.prefetch import DirectLane, Prefetched
from landscape_cli.site import Site, noise_floor

CPU = torch.device("cpu")


@dataclass
class Pair:
    input: Tensor
    target: Tensor


def rows(count: int, size: int = 6) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(size, 4, generator=generator), torch.randint(0, 3, (size,)))
        for _ in range(count)
    ]


FORMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "pair": lambda x, y: (x, y),
    "mapping": lambda x, y: {"x": x, "label": y},
    "nested": lambda x, y: ({"input": x}, y),
    "object": Pair,
}


def split(raws: Sequence[Any], model: nn.Module) -> list[Batch]:
    return [Batch.split(raw, model) for raw in raws]


def all_prefetched(
    host: Sequence[Batch], model: nn.Module, device: torch.device, *, whole: bool
) -> Sequence[Batch]:
    return Prefetched(host, model, device, whole=whole)


@pytest.mark.parametrize("form", FORMS)
def test_prefetched_batches_are_the_batches(form: str) -> None:
    model = nn.Linear(4, 3)
    host = split([FORMS[form](x, y) for x, y in rows(4)], model)
    staged = Prefetched(host, model, CPU, whole=False)
    assert len(staged) == 4
    asked = (0, 1, 2, 3, 0, 0, 2, -1)
    given = (*(staged[i] for i in asked), *staged, *staged[1:3])
    for found, index in zip(given, (*asked, *range(4), 1, 2), strict=True):
        expected = host[index]
        assert type(found.raw) is type(expected.raw)
        assert found.size == expected.size
        pairs = list(zip(batches.tensors_in(found), batches.tensors_in(expected), strict=True))
        assert pairs
        for one, other in pairs:
            assert torch.equal(one, other)
            assert one.data_ptr() != other.data_ptr(), "it is a copy"
    for index in (4, -5):
        with pytest.raises(IndexError):
            staged[index]


def test_the_present_batch_is_copied_once_and_the_next_one_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[float] = []
    start = DirectLane.start

    def noted(self: DirectLane, raw: Any) -> Callable[[], Any]:
        started.append(float(raw[0][0, 0]))
        return start(self, raw)

    monkeypatch.setattr(DirectLane, "start", noted)
    model = nn.Linear(4, 3)
    raws = [(torch.full((2, 4), float(k)), torch.zeros(2)) for k in range(3)]
    staged = Prefetched(split(raws, model), model, CPU, whole=False)
    assert staged[0] is staged[0]
    assert started == [0, 1], "the next one is on its way"
    assert float(staged[1].inputs[0][0, 0]) == 1
    assert started == [0, 1, 2]
    staged[2], staged[0]
    assert started == [0, 1, 2, 0, 1], "after the last comes the first"


def alive(size: int) -> int:
    """Return how many tensors of inputs there are, those of the host included."""
    inputs = (t for t in gc.get_objects() if type(t) is Tensor and t.shape == (size, 4))
    return len({tensor.data_ptr() for tensor in inputs})


@pytest.mark.parametrize("mode", ["batch", "frozen"])
def test_no_more_than_two_batches_are_there_at_once(mode: Any) -> None:
    size, count, counts = 37, 5, []

    class Watching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)

        def forward(self, x: Tensor) -> Tensor:
            counts.append(alive(size) - count)
            return self.norm(self.layer(x))

    model = Watching()
    staged = Prefetched(split(rows(count, size), model), model, CPU, whole=False)
    with Objective(
        model, staged, losses.resolve("cross-entropy", model), norm_mode=mode
    ) as objective:
        assert not objective.resident
        site = Site.survey(objective, label="", learning_rate=0.1, seed=0)
        objective.value()
        objective.value_and_change(site.gradient)
        objective.directional_curvature(site.gradient)
    assert len(counts) == 5 * count, "observed, surveyed, and evaluated three times"
    assert max(counts) == 2
    assert min(counts) >= 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strategy", ["plain", "stacked"])
def test_a_probe_of_prefetched_batches_gives_the_same_numbers(
    strategy: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    arguments: dict[str, Any] = {
        "model": nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double(),
        "data": [FORMS[form](x, y) for x, y in rows(4)],
        "batches": 4,
        "lr": 0.1,
        "steps": "0.5:2:5",
        "directions": ("gradient", "random:1"),
        "strategy": strategy,
        "measures": ("activation_smoothness",) if strategy == "plain" else (),
    }
    expected = landscape.probe(**arguments)
    monkeypatch.setattr(prefetch, "staged", all_prefetched)
    found = landscape.probe(**arguments)
    assert "copied ahead of its use" in found.attributes["notices"]
    assert "copied ahead of its use" not in expected.attributes["notices"]
    for name in ("loss", "gradient_change", "noise_floor", "effective_smoothness/limit"):
        # Stacked, the layers are computed in another order when they are no dense chain.
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, err_msg=name)
    if strategy == "plain":
        np.testing.assert_array_equal(found["loss"], expected["loss"])
        np.testing.assert_array_equal(
            found["activation_smoothness/beta"], expected["activation_smoothness/beta"]
        )


def test_micro_batches_are_prefetched(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: dict[str, Any] = {
        "model": nn.Linear(4, 3).double(),
        "data": rows(1, 20),
        "lr": 0.1,
        "steps": "1:2:2",
        "micro_batch": 6,
    }
    expected = landscape.probe(**arguments)
    monkeypatch.setattr(prefetch, "staged", all_prefetched)
    np.testing.assert_array_equal(landscape.probe(**arguments)["loss"], expected["loss"])


def test_what_needs_all_batches_in_one_place_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 3))
    staged = Prefetched(split(rows(3), model), model, CPU, whole=False)
    with Objective(model, staged, losses.resolve("cross-entropy", model)) as objective:
        site = Site.survey(objective, label="", learning_rate=0.1, seed=0)
        assert "do not fit on the device" in describe_chain(site)
        assert Graph().refusal(site, Line("gradient", site.gradient))
        assert noise_floor(site) > 0


def test_prefetched_batches_are_widened_where_they_are() -> None:
    model = nn.Linear(4, 3)
    host = split(rows(3), model)
    loss = losses.resolve("cross-entropy", model)
    staged = Prefetched(host, model, CPU, whole=False)
    with (
        Objective(model, staged, loss) as one,
        Objective(model, host, loss) as other,
        in_float64(one) as wide,
        in_float64(other) as expected,
    ):
        assert isinstance(wide.batches, Prefetched)
        assert wide.batches[0].inputs[0].dtype == torch.float64
        assert wide.value() == expected.value()


def test_batches_fit_when_they_take_their_share() -> None:
    raws = [{"x": torch.zeros(10, 4), "y": torch.zeros(10, dtype=torch.int64)}]
    taken = 10 * 4 * 4 + 10 * 8
    assert prefetch.fit(raws, torch.float32, int(taken / prefetch.BATCH_SHARE))
    assert not prefetch.fit(raws, torch.float64, int(taken / prefetch.BATCH_SHARE))
    assert not prefetch.fit(raws, torch.float32, int(taken / prefetch.BATCH_SHARE) - 4)


def test_batches_that_are_there_are_left_where_they_are() -> None:
    model = nn.Linear(4, 3)
    host = split(rows(4), model)
    assert prefetch.staged(host, model, CPU, whole=False) is host
    meta = torch.device("meta")
    assert isinstance(prefetch.staged(host, model, meta, whole=False), Prefetched)
    few = prefetch.staged(host[:2], model, meta, whole=False)
    assert isinstance(few, list)
    assert [batch.inputs[0].device for batch in few] == [meta, meta]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_gpu_computes_on_prefetched_batches_what_it_computes_on_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments: dict[str, Any] = {
        "model": nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 3)).cuda(),
        "data": rows(6, 5000),
        "batches": 6,
        "lr": 0.1,
        "steps": "0.5:2:5",
        "strategy": "plain",
    }
    expected = landscape.probe(**arguments)
    monkeypatch.setattr(prefetch, "BATCH_SHARE", 0.0)
    found = landscape.probe(**arguments)
    assert "copied ahead of its use" in found.attributes["notices"]
    for name in ("loss", "gradient_change", "effective_smoothness/limit"):
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_gpu_holds_two_batches_and_the_host_does_not_run_ahead() -> None:
    model = nn.Linear(1024, 8).cuda()
    size = 4096 * 1024 * 4
    raws = [(torch.randn(4096, 1024), torch.zeros(4096, 8)) for _ in range(8)]
    staged = Prefetched(split(raws, model), model, torch.device("cuda"), whole=False)
    with Objective(model, staged, losses.resolve("mse", model)) as objective:
        objective.value()
        staged.release()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        for _ in range(3):
            objective.value()
        assert torch.cuda.max_memory_allocated() - before < 2.5 * size
