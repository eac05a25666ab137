from __future__ import annotations

import cases
import pytest
import torch
from sites import surveyed
from torch import Tensor, nn

from landscape_cli import site as module
from landscape_cli.site import noise_floor


def raws() -> list[tuple[Tensor, Tensor]]:
    x, y = cases.classification_data().tensors
    return [(x[:10], y[:10]), (x[10:], y[10:])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_nudge_is_to_the_next_number_up_or_down(dtype: torch.dtype) -> None:
    values = torch.tensor([1.0, -1.0, 0.0, 3.5, -(2.0**-20)], dtype=dtype).repeat(40)
    signs = torch.where(torch.arange(200) % 3 == 0, 1.0, -1.0).to(dtype)
    moved = module._next_number(values, signs * torch.inf)
    still = values == 0
    assert torch.equal(moved[still], values[still])
    assert torch.equal((moved - values).sign()[~still], signs[~still])
    # Numbers between two powers of two are eps times the lower one apart.
    unit = 2 * torch.finfo(dtype).eps * values.abs()
    assert ((moved - values).abs() <= unit).all()


def test_the_noise_floor_nudges_every_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    placed: dict[int, Tensor] = {}
    with surveyed(nn.Linear(4, 3), raws()) as site:
        place = site.parameters.place_at

        def note(position: int, values: Tensor) -> None:
            placed[position] = values.clone()
            place(position, values)

        monkeypatch.setattr(site.parameters, "place_at", note)
        assert noise_floor(site) > 0
        for position, origin in enumerate(site.parameters.origin):
            assert (placed[position] != origin).all()
            assert (placed[position] > origin).any()
            assert (placed[position] < origin).any()


@pytest.mark.parametrize("count", [1, 2])
def test_the_noise_floor_is_the_larger_of_nudging_and_permuting(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with surveyed(nn.Linear(4, 3).double(), raws()[:count]) as site:
        nudged, permuted = module._nudged(site), module._permuted(site)
        assert permuted is not None
        assert 0 < nudged < 1e-13
        assert permuted < 1e-13
        assert noise_floor(site) == max(nudged, permuted)


def test_samples_whose_order_means_something_are_not_permuted() -> None:
    class Ordered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) * torch.arange(len(x)).unsqueeze(1)

    with surveyed(Ordered(), raws()) as site:
        assert module._permuted(site) is None
