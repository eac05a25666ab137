"""A model that belongs to the caller is bit for bit what it was, whatever fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cases
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import landscape_cli as landscape
from landscape_cli.devices import place_model

CPU = torch.device("cpu")


class Momentum(nn.Module):
    """Follows its own weights slowly, in the forward pass, in a copy that does not train."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.slow = nn.Linear(4, 3), nn.Linear(4, 3)
        self.table = nn.Embedding(5, 4, max_norm=0.5)
        self.slow.requires_grad_(False)
        self.table.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.slow.weight.mul_(0.9).add_(self.layer.weight, alpha=0.1)
            self.slow.bias.data = self.slow.bias.data * 0.9 + self.layer.bias.data * 0.1
        return self.layer(x + self.table(torch.arange(len(x)) % 5)) + self.slow(x)


class Convolutional(nn.Module):
    """Has weights that are laid out anew to be measured, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.leave = nn.Linear(4, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.norm(self.conv(x)).relu().mean((2, 3)))


def images() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(6, 3, 6, 6, generator=generator), torch.arange(6))]


def rows() -> list[tuple[Tensor, Tensor]]:
    x, y = cases.classification_data().tensors
    return [(x.float(), y)]


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], list[tuple[Tensor, Tensor]]]]] = {
    "momentum": (Momentum, rows),
    "convolutional": (Convolutional, images),
}


class Kept:
    """What a model is made of: tensors, their memory, their strides and their values."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._before = self._state()

    def _state(self) -> dict[str, tuple[object, ...]]:
        tensors = {**dict(self._model.named_parameters()), **dict(self._model.named_buffers())}
        flags = {name: (m.training,) for name, m in self._model.named_modules()}
        return flags | {
            f"tensor {name}": (id(t), t.data_ptr(), t.stride(), t.requires_grad, t.tolist())
            for name, t in tensors.items()
        }

    def check(self) -> None:
        after = self._state()
        assert after.keys() == self._before.keys()
        for name, was in self._before.items():
            assert after[name] == was, name


def interrupting(model: nn.Module, after: int) -> None:
    """Let the forward pass with that number be interrupted from the keyboard."""
    calls, forward = [0], model.forward

    def interrupted(x: Tensor) -> Tensor:
        calls[0] += 1
        if calls[0] == after:
            raise KeyboardInterrupt
        return forward(x)

    model.forward = interrupted  # type: ignore[method-assign]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 5, 6, 8, 11])
def test_a_live_model_comes_back_when_it_is_interrupted(name: str, after: int) -> None:
    torch.manual_seed(0)
    model, raws = MODELS[name][0](), MODELS[name][1]()
    kept = Kept(model)
    if after:
        interrupting(model, after)
        with pytest.raises(KeyboardInterrupt):
            landscape.probe(model=model, data=raws, lr=0.1, steps="1:2:4", directions="random:2")
        del model.forward
    else:
        landscape.probe(model=model, data=raws, lr=0.1, steps="1:2:4", directions="random:2")
    kept.check()


def test_a_live_model_comes_back_when_its_layout_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 3), nn.Flatten(), nn.Linear(8, 10))
    kept = Kept(model)
    contiguous, calls = Tensor.contiguous, [0]

    def interrupted(self: Tensor, **options: torch.memory_format) -> Tensor:
        if options.get("memory_format") is torch.channels_last and self.shape[0] in (2, 4):
            calls[0] += 1
            if calls[0] == 2:
                raise KeyboardInterrupt
        return contiguous(self, **options)

    monkeypatch.setattr(Tensor, "contiguous", interrupted)
    with pytest.raises(KeyboardInterrupt):
        landscape.probe(model=model, data=images(), lr=0.1)
    assert calls[0] == 2
    kept.check()


@pytest.mark.parametrize("failing", [False, True])
def test_checkpoints_that_are_loaded_into_a_live_model_leave_no_trace(
    failing: bool, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model, other = Convolutional(), Convolutional()
    torch.save(other.state_dict(), tmp_path / "other.pt")
    kept = Kept(model)
    arguments = {"model": model, "data": images(), "lr": 0.1, "steps": "1:2:2"}
    if failing:
        interrupting(model, 7)
        with pytest.raises(KeyboardInterrupt):
            landscape.probe(tmp_path / "other.pt", **arguments)
        del model.forward
    else:
        run = landscape.probe(tmp_path / "other.pt", **arguments)
        expected = landscape.probe(model=other, data=images(), lr=0.1, steps="1:2:2")
        np.testing.assert_array_equal(run["loss"], expected["loss"])
    kept.check()


def test_a_live_model_is_measured_in_its_own_memory() -> None:
    model = nn.Linear(4, 3)
    with place_model(model, CPU, "float32", live=True, loads=False) as placed:
        assert placed is model
    with place_model(model, CPU, "float64", live=True) as placed:
        assert placed is not model
        assert placed.weight.dtype == torch.float64


def test_tied_tensors_are_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    clones, clone = [0], Tensor.clone

    def counted(self: Tensor) -> Tensor:
        clones[0] += 1
        return clone(self)

    monkeypatch.setattr(Tensor, "clone", counted)
    with place_model(model, CPU, "float32", live=True):
        assert clones[0] == 1
        with torch.no_grad():
            model[1].weight.add_(1)
    monkeypatch.undo()
    before = model[0].weight.detach().clone()
    with place_model(model, CPU, "float32", live=True), torch.no_grad():
        model[0].weight.zero_()
    assert torch.equal(model[0].weight, before)
