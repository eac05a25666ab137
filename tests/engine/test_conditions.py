"""What a run computes under is settled once, written down and kept to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import nn

import landscape_cli as landscape
from landscape_cli.engine import worker
from landscape_cli.engine.conditions import Conditions
from landscape_cli.engine.layout import laid_out, layouts
from landscape_cli.units import UnitKey


class Convolving(nn.Module):
    """Two convolutions; remembers how its images lay in memory."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, width, 3), nn.Conv2d(width, 2, 3)
        self.seen: list[bool] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x.is_contiguous(memory_format=torch.channels_last))
        return self.second(torch.tanh(self.first(x))).mean(dim=(2, 3))


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(6, 3, 8, 8, generator=generator), torch.tensor([0, 1, 0, 1, 1, 0]))]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The seconds that the next timings find."""
    found: list[float] = []

    def timed(evaluate) -> float:
        evaluate()
        return found.pop(0)

    monkeypatch.setattr(worker, "seconds", timed)
    yield found
    assert found == []


def probe(model: nn.Module, steps: str = "0.5:4:100", **options: object) -> landscape.Run:
    return landscape.probe(
        model=model, data=batches(), loss="cross-entropy", lr=0.1, steps=steps, **options
    )


def test_conditions_are_found_again_among_finished_units() -> None:
    conditions = Conditions(3, "channels_last")
    keys = [UnitKey(0, "base"), conditions.unit().key]
    assert Conditions.recorded(keys) == conditions
    assert Conditions.recorded(keys[:1]) is None


def test_narrow_convolutions_are_tried_with_the_channels_last_first() -> None:
    assert layouts(Convolving()) == ("channels_last", "contiguous")
    assert layouts(Convolving(width=300)) == ("mixed", "contiguous", "channels_last")
    assert layouts(nn.Conv2d(3, 300, 1)) == ("contiguous", "channels_last")
    assert layouts(nn.Linear(2, 2)) == ()


@pytest.mark.parametrize(
    ("timings", "layout"),
    [([1.0, 2.0], "channels_last"), ([1.0, 0.5], "contiguous"), ([1.0, 0.97], "channels_last")],
)
def test_the_faster_layout_is_computed_with_and_written_down(
    clock: list[float], timings: list[float], layout: str
) -> None:
    clock.extend(timings)
    model = Convolving()
    run = probe(model)
    assert run.attributes["layout"] == layout
    assert set(model.seen[-100:]) == {layout == "channels_last"}
    assert model.first.weight.is_contiguous()


@pytest.mark.parametrize("options", [{"steps": "1:2:2"}, {"strategy": "plain"}])
def test_short_runs_and_forced_strategies_leave_nothing_to_the_clock(
    clock: list[float], options: dict[str, str]
) -> None:
    run = probe(Convolving(), **options)
    assert run.attributes["layout"] == "channels_last"


@pytest.mark.parametrize(
    ("timings", "layout"),
    [
        ([1.0, 2.0, 2.0], "mixed"),
        ([1.0, 0.5, 0.6], "contiguous"),
        ([1.0, 0.9, 0.5], "channels_last"),
    ],
)
def test_wide_convolutions_may_be_the_only_contiguous_ones(
    clock: list[float], timings: list[float], layout: str
) -> None:
    expected = probe(Convolving(width=300), strategy="plain", dtype="float64")
    clock.extend(timings)
    run = probe(Convolving(width=300), dtype="float64")
    assert run.attributes["layout"] == layout
    np.testing.assert_allclose(run["loss"], expected["loss"], rtol=1e-12)
    np.testing.assert_allclose(run["gradient_change"], expected["gradient_change"], rtol=1e-9)


def test_mixed_layouts_are_put_back() -> None:
    model = Convolving(width=300)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    places = {name: value.data_ptr() for name, value in model.state_dict().items()}
    with laid_out(model, "mixed", keep=True):
        assert model.first.weight.is_contiguous()
        assert model.second.weight.is_contiguous(memory_format=torch.channels_last)
        model(batches()[0][0].contiguous(memory_format=torch.channels_last))
    assert not model.first._forward_pre_hooks
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
        assert value.data_ptr() == places[name]


def test_a_run_that_goes_on_keeps_its_layout(clock: list[float], tmp_path: Path) -> None:
    clock.extend([1.0, 0.5])
    whole = probe(Convolving(), output=tmp_path / "whole.h5")

    class Stopping(landscape.progress.Silent):
        def advance(self, points: int, where: str = "") -> None:
            raise KeyboardInterrupt

    clock.extend([1.0, 0.5])
    with pytest.raises(KeyboardInterrupt):
        probe(Convolving(), output=tmp_path / "run.h5", progress=Stopping())
    run = probe(Convolving(), output=tmp_path / "run.h5", resume=True)  # and times nothing
    assert run.attributes["layout"] == "contiguous"
    assert (run["loss"] == whole["loss"]).all()
    with h5py.File(tmp_path / "run.h5") as file:
        assert file.attrs["layout"] == "contiguous"


def test_a_model_that_takes_contiguous_features_only_gets_them(clock: list[float]) -> None:
    class Viewing(Convolving):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            features = self.second(self.first(x))
            return features.view(len(x), -1)[:, :2]  # refused where the channels are last

    assert probe(Viewing()).attributes["layout"] == "contiguous"


def test_a_model_without_convolutions_has_no_layout(clock: list[float]) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 2))
    assert probe(model).attributes["layout"] == ""
