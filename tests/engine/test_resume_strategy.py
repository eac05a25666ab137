"""A run that was interrupted goes on with the strategy and chunk it had chosen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import landscape_cli as landscape
from landscape_cli.engine import worker
from sample_models.adapter import build_model


class Interrupting:
    """Progress that stops the run after so many points."""

    def __init__(self, after: int = 1_000_000) -> None:
        self.after = after
        self.notices: list[str] = []

    def start(self, points: int) -> None:
        self.left = self.after

    def advance(self, points: int, where: str) -> None:
        self.left -= points
        if self.left <= 0:
            raise KeyboardInterrupt

    def notice(self, text: str) -> None:
        self.notices.append(text)


def settings(**more: object) -> dict[str, object]:
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(
        torch.randn(64, 10, generator=generator), torch.randint(0, 3, (64,), generator=generator)
    )
    return {
        "model": build_model("mlp", seed=0, hidden=(12,), in_features=10, classes=3),
        "data": data,
        "lr": 0.1,
        "steps": "0.5:4:24",
        "directions": ("gradient", "random:1"),
        **more,
    }


def test_a_resumed_run_has_the_numbers_of_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = landscape.probe(**settings(strategy="stacked"), output=tmp_path / "whole.h5")
    chunk = int(whole.attributes["chunk"])
    part = tmp_path / "part.h5"
    with pytest.raises(KeyboardInterrupt):
        landscape.probe(
            **settings(strategy="stacked", chunk=chunk),
            output=part,
            progress=Interrupting(after=25),
        )
    # What was written down decides, not a new trial.
    monkeypatch.setattr(worker, "choose", None)
    resumed = landscape.probe(**settings(strategy="stacked", chunk=chunk), output=part, resume=True)
    assert resumed.attributes["strategy"] == "stacked"
    assert resumed.attributes["chunk"] == chunk
    assert resumed.complete
    for name in ("loss", "gradient_change", "gradient_cosine", "distance"):
        assert np.array_equal(resumed[name], whole[name]), name


def test_the_choice_is_told_and_kept() -> None:
    progress = Interrupting()
    run = landscape.probe(**settings(strategy="stacked", chunk=6), progress=progress)
    assert any("strategy stacked" in notice for notice in progress.notices)
    assert (run.attributes["strategy"], run.attributes["chunk"]) == ("stacked", 6)


def test_a_model_that_cannot_be_stacked_gives_way_in_the_run_itself() -> None:
    class Reading(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(10, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = self.layer(x)
            return scores / float(scores.detach().abs().max())

    progress = Interrupting()
    changes = {"model": Reading(), "strategy": "stacked", "chunk": 6}
    run = landscape.probe(**settings(**changes), progress=progress)
    plain = landscape.probe(**settings(**{**changes, "strategy": "plain", "chunk": 1}))
    assert run.attributes["strategy"] == "plain"
    assert any("gave way to plain" in notice for notice in progress.notices)
    for name in ("loss", "gradient_change", "distance"):
        assert np.array_equal(run[name], plain[name]), name
