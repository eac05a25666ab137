from __future__ import annotations

import copy
import math

import cases
import numpy as np
import oracles
import pytest
import torch
from sites import surveyed, swept
from torch import nn

from landscape_cli.measures.activation_smoothness import ActivationSmoothness

NETS = {
    "dense": (cases.Tanh3, lambda: cases.vector_data(7), ["enter", "middle", "leave"]),
    "convolutional": (cases.SmallConvNet, lambda: cases.image_data(5, 6), None),
    "batch norm": (
        cases.SmallBatchNormNet,
        lambda: cases.image_data(6, 4) + cases.image_data(4, 4, seed=8),
        ["conv", "dense", "leave"],
    ),
}


@pytest.mark.parametrize("net", NETS)
def test_beta_and_quadratic_form_agree_with_a_loop_over_examples(net: str) -> None:
    build, data, names = NETS[net]
    names = names or ["first", "second", "leave"]
    model, raws = build(), data()
    if net == "convolutional":
        model.bend.inplace = False  # the oracle differentiates by the outputs themselves
    expected = oracles.activation_smoothness(copy.deepcopy(model), raws, names, [0.05, 0.1, 0.2])
    with surveyed(build(), raws) as site:
        found = swept(ActivationSmoothness(), site)
    assert found["layer"].tolist() == names
    np.testing.assert_allclose(found["beta"], expected["beta"], rtol=1e-7)
    # Sums of products of both signs: rounding against the largest term.
    np.testing.assert_allclose(
        found["quadratic_form"], expected["quadratic_form"], rtol=1e-7, atol=1e-15
    )
    assert (found["not_finite"] == 0).all()


def test_least_squares_has_the_curvature_of_its_loss_at_the_output() -> None:
    # ℓ = ½·2·(y − t)² summed over outputs: ∂²ℓ/∂y² = 2 for every example, whatever the step.
    layer = nn.Linear(4, 3).double()
    x, _ = cases.vector_data(9)[0]
    target = torch.zeros(9, 3, dtype=torch.float64)
    with surveyed(layer, [(x, target)], "sse") as site:
        found = swept(ActivationSmoothness(), site)
        gradient = 2 * layer(x).detach()
    assert found["layer"].tolist() == ["(model)"]
    np.testing.assert_allclose(found["beta"], [2.0], rtol=1e-9)
    assert found["quadratic_form"][0] == pytest.approx(2 * float((gradient**2).sum()))


def test_a_layer_whose_output_does_not_move_has_no_ratio() -> None:
    model = cases.Tanh3()
    model.enter.requires_grad_(False)
    with surveyed(model, cases.vector_data(7)) as site:
        found = swept(ActivationSmoothness(), site)
    assert math.isnan(found["beta"][0])
    assert found["not_finite"][0] == 0
    assert np.isfinite(found["beta"][1:]).all()


def test_points_that_are_not_finite_are_counted_and_left_out_of_the_maximum() -> None:
    raws = cases.vector_data(7)
    with surveyed(cases.Tanh3(), raws, multiples=(0.5, 1.0)) as site:
        tame = swept(ActivationSmoothness(), site)
    with surveyed(cases.Tanh3(), raws, multiples=(0.5, 1.0, math.inf)) as site:
        wild = swept(ActivationSmoothness(), site)
    np.testing.assert_allclose(wild["beta"], tame["beta"])
    assert (wild["not_finite"] == 7).all()


def test_a_batch_of_tokens_counts_its_sequences_as_examples() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 3)
            cases.fill_randomly(self, 0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x.reshape(-1, 2)).reshape(len(x), -1, 3).square().mean(1)

    raws = cases.vector_data(6)
    with surveyed(Tokens(), raws) as site:
        found = swept(ActivationSmoothness(), site)
    expected = oracles.activation_smoothness(Tokens(), raws, ["inner"], [0.05, 0.1, 0.2], rows=6)
    np.testing.assert_allclose(found["beta"], expected["beta"], rtol=1e-7)


def test_a_model_without_such_layers_is_refused() -> None:
    model = cases.quadratic()
    with surveyed(model, cases.one_batch(), "model") as site:
        assert "no dense or convolutional layer" in ActivationSmoothness().refusal(site)
