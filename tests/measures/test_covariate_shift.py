from __future__ import annotations

import copy
import math

import cases
import numpy as np
import oracles
import pytest
import torch
from sites import surveyed, taken
from torch import nn

from landscape_cli.measures.covariate_shift import CovariateShift

NETS = {
    "dense": (cases.Tanh3, lambda: cases.vector_data(11), ["enter", "middle", "leave"]),
    "convolutional": (
        cases.SmallConvNet,
        lambda: cases.image_data(7, 6),
        ["first", "second", "leave"],
    ),
    "batch norm": (
        cases.SmallBatchNormNet,
        lambda: cases.image_data(9, 4) + cases.image_data(5, 4, seed=8),
        ["conv", "norm2d", "dense", "norm1d", "leave"],
    ),
}


@pytest.mark.parametrize("net", NETS)
def test_every_layer_agrees_with_a_naive_double_loop(net: str) -> None:
    build, data, names = NETS[net]
    model, raws = build(), data()
    expected = oracles.covariate_shift(copy.deepcopy(model), raws, names, 0.3)
    with surveyed(model, raws, lr=0.3) as site:
        found = taken(CovariateShift(), site)
    assert found["layer"].tolist() == names
    np.testing.assert_allclose(found["l2"], expected["l2"], rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(found["cosine"], expected["cosine"], rtol=1e-9)
    np.testing.assert_allclose(found["gradient_norm"], expected["gradient_norm"], rtol=1e-9)
    assert found["l2"][0] == 0
    assert found["cosine"][0] == pytest.approx(1)
    assert (found["l2"][1:] > 1e-6).all()


def test_float32_agrees_with_the_float64_reference_to_its_rounding() -> None:
    model, raws = cases.Tanh3(), cases.vector_data(11)
    expected = oracles.covariate_shift(copy.deepcopy(model), raws, NETS["dense"][2], 0.3)
    with surveyed(model.float(), raws, lr=0.3) as site:
        found = taken(CovariateShift(), site)
    # Differences of gradients of order one, each rounded at 6e-8.
    np.testing.assert_allclose(found["l2"], expected["l2"], rtol=1e-4, atol=1e-7)


def test_a_tied_tensor_belongs_to_the_first_layer_that_uses_it() -> None:
    model = cases.Awkward().double()
    raws = [cases.awkward_data().tensors]
    with surveyed(model, raws) as site:
        found = taken(CovariateShift(), site)
        lengths = [float(g.norm()) for g in site.gradient]
        names = site.parameters.names
    assert found["layer"].tolist() == ["enter", "norm", "first", "again", "leave"]
    assert found["gradient_norm"][3] == pytest.approx(lengths[names.index("again.bias")])


def test_layers_are_in_the_order_of_use_not_of_definition() -> None:
    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(4, 3)
            self.shift = nn.Parameter(torch.ones(4))
            self.first = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
            cases.fill_randomly(self, 0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.tanh(self.first(x)) + self.shift)

    with surveyed(Backwards(), cases.vector_data(6)) as site:
        found = taken(CovariateShift(), site)
    assert found["layer"].tolist() == ["first", "(model)", "last"]


def test_weights_that_attention_uses_without_calling_their_module_are_found_in_place() -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.leave = nn.Linear(4, 3)
            self.attend = nn.MultiheadAttention(4, 2, batch_first=True)
            cases.fill_randomly(self, 0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tokens = x[:, None] * torch.linspace(0.5, 1, 3, dtype=x.dtype)[:, None]
            return self.leave(self.attend(tokens, tokens, tokens)[0].mean(1))

    with surveyed(Attending(), cases.vector_data(6)) as site:
        found = taken(CovariateShift(), site)
    assert found["layer"].tolist() == ["attend", "attend.out_proj", "leave"]


def test_a_linear_deep_net_with_one_step_of_zero_has_no_shift() -> None:
    with surveyed(cases.Tanh3(), cases.vector_data(6), lr=0.0) as site:
        found = taken(CovariateShift(), site)
    assert (found["l2"] == 0).all()
    np.testing.assert_allclose(found["cosine"], 1)


def test_it_is_refused_in_one_line_without_a_learning_rate() -> None:
    with surveyed(cases.Tanh3(), cases.vector_data(6), lr=math.nan) as site:
        refusal = CovariateShift().refusal(site)
    assert "--lr" in refusal
    assert "\n" not in refusal
