"""Large models: streamed gradients, regenerated directions, micro-batches, recycled memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import engine_cases
import numpy as np
import pytest
import torch
from engine_cases import PROBLEMS
from torch import nn
from torch.utils.data import TensorDataset

import landscape_cli as landscape
from landscape_cli import directions
from landscape_cli.engine import headings, memory, plain
from landscape_cli.engine.plain import Plain
from landscape_cli.engine.regenerated import Regenerated
from landscape_cli.engine.strategy import Line
from landscape_cli.errors import MeasurementError

SIZES = [0.01, 0.1]


def single(name: str) -> engine_cases.Problem:
    problem = PROBLEMS[name]
    return dataclasses.replace(problem, batches=lambda: problem.batches()[:1])


@pytest.mark.parametrize("problem", [single, PROBLEMS.__getitem__], ids=["one batch", "two"])
@pytest.mark.parametrize("name", ["mlp-batchnorm", "resnet", "gpt", "awkward", "dropping"])
def test_streamed_gradients_have_the_sums_of_whole_ones(
    name: str, problem: Callable[[str], engine_cases.Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_cases.open_site(problem(name)) as site:
        line = Line("gradient", site.gradient)
        expected, _ = Plain().prepare(site, line).evaluate(SIZES)
        marker = torch.ones_like(site.parameters.tensors[0])
        site.parameters.tensors[0].grad = marker
        monkeypatch.setattr(plain, "STREAMED", 0)
        found, _ = Plain().prepare(site, line).evaluate(SIZES)
        assert site.parameters.tensors[0].grad is marker, "somebody's gradient is left alone"
        assert all(tensor.grad is None for tensor in site.parameters.tensors[1:])
    assert torch.equal(marker, torch.ones_like(marker))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_gradients_are_streamed_one_tensor_at_a_time() -> None:
    with engine_cases.open_site(single("mlp-relu")) as site:
        seen: list[int] = []

        def reduce(position: int, gradient: torch.Tensor | None) -> None:
            assert all(tensor.grad is None for tensor in site.parameters.tensors)
            assert gradient is not None
            seen.append(position)

        site.objective.value_and_reduction(reduce)
    assert sorted(seen) == list(range(len(site.parameters.tensors)))


@pytest.mark.parametrize("kind", ["random", "random_filter"])
def test_regenerated_directions_are_the_kept_ones(kind: str) -> None:
    with engine_cases.open_site(PROBLEMS["mlp-relu"]) as site:
        kept = directions.scaled_to(getattr(directions, kind)(site.parameters, 1, 2), 0.5)
        made = getattr(Regenerated, kind)(site.parameters, 1, 2, 0.5)
        assert all(map(torch.equal, kept, made))
        lines = [Line("random:2", kept), Line("random:2", made)]
        first, second = (Plain().prepare(site, line).evaluate(SIZES)[0] for line in lines)
    np.testing.assert_array_equal(first, second)


def test_directions_are_regenerated_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {
        "model": cases_model(),
        "data": data(),
        "lr": 0.1,
        "steps": "1:2:2",
        "directions": ("random:1", "random-filter:1"),
        "dtype": "float64",
    }
    kept = landscape.probe(**arguments)
    monkeypatch.setattr(headings, "available_bytes", lambda device: 0)
    made = landscape.probe(**arguments)
    for name in ("loss", "gradient_change", "distance"):
        np.testing.assert_array_equal(made[name], kept[name])
    np.testing.assert_allclose(
        made["effective_smoothness/limit"], kept["effective_smoothness/limit"], rtol=1e-10
    )


def cases_model(norm: str = "none") -> nn.Module:
    from sample_models.adapter import build_model

    return build_model("mlp", hidden=(8,), in_features=6, classes=3, norm=norm, seed=0).double()


def data(samples: int = 21) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 6, generator=generator, dtype=torch.float64)
    return TensorDataset(x, torch.randint(0, 3, (samples,), generator=generator))


def micro(model: nn.Module, size: int | None, **settings: object) -> landscape.Run:
    return landscape.probe(
        model=model, data=data(), lr=0.1, steps="1:2:3", batch_size=10, batches=2,
        micro_batch=size, dtype="float64", **settings,
    )  # fmt: skip


def test_micro_batches_are_exact_to_rounding() -> None:
    whole, cut = micro(cases_model(), None), micro(cases_model(), 3)
    for name in ("base_loss", "gradient_norm", "loss", "gradient_change", "smoothness"):
        np.testing.assert_allclose(cut[name], whole[name], rtol=1e-12)


def test_a_batch_of_a_network_with_batch_statistics_is_never_split() -> None:
    with pytest.raises(MeasurementError, match="no checkpoint could be measured") as caught:
        micro(cases_model("batch"), 3)
    assert "batch statistics cannot be split" in caught.value.seen
    assert micro(cases_model("batch"), 3, norm_mode="running").complete


def test_samples_that_see_each_other_are_never_split() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 3, dtype=torch.float64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x - x.mean(0))

    with pytest.raises(MeasurementError) as caught:
        micro(Centred(), 3)
    assert "influence each other" in caught.value.seen


def test_memory_is_recycled_and_given_back() -> None:
    with memory.recycled():
        block = torch.ones(1 << 20)
    assert float(block.sum()) == 1 << 20


def test_some_memory_is_available() -> None:
    assert memory.available_bytes(torch.device("cpu")) > 1 << 20


def test_channels_last_comes_back_as_it_was() -> None:
    from landscape_cli.engine.layout import laid_out

    model = nn.Conv2d(3, 4, 3)
    original, values = model.weight.data, model.weight.detach().clone()
    with laid_out(model, "channels_last", keep=True):
        assert model.weight.is_contiguous(memory_format=torch.channels_last)
        with torch.no_grad():
            model.weight.mul_(2)
    assert model.weight.data_ptr() == original.data_ptr()
    assert model.weight.stride() == values.stride()
    assert torch.equal(model.weight, 2 * values)
    with laid_out(model, "channels_last", keep=False):
        pass
    assert model.weight.is_contiguous()


def test_a_net_that_views_its_features_is_measured_contiguously() -> None:
    class Viewing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.leave = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.leave(self.conv(x).view(len(x), -1))

    batches = [
        (torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(5))
    ]
    torch.manual_seed(0)
    model = Viewing()
    weight = model.conv.weight.data_ptr()
    run = landscape.probe(model=model, data=batches, lr=0.1, steps="1:2:2")
    assert run.complete
    assert np.isfinite(run["loss"]).all()
    assert model.conv.weight.data_ptr() == weight
