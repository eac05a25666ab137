from __future__ import annotations

from functools import partial

import cases
import numpy as np
import oracles
import pytest
import torch
import torch.nn.functional as F
from sites import surveyed, taken
from torch import Tensor, nn

from landscape_cli.errors import SpecError
from landscape_cli.measures.normalisation_bounds import NormalisationBounds

TINY = 1e-30
"""An ε that leaves σ² as it is in float64; torch refuses 0."""
SIDES = ("lipschitz_left", "lipschitz_right", "smoothness_left", "smoothness_right")


def expected_sides(model: cases.SmallBatchNormNet, x: Tensor, target: Tensor) -> dict[str, list]:
    """Return what dense Hessians say of both layers of `cases.SmallBatchNormNet`."""
    weights = {name: p.detach() for name, p in model.named_parameters()}
    eps = model.norm1d.eps
    conv = F.conv2d(x, weights["conv.weight"], weights["conv.bias"], padding=1)

    def after_dense(z: Tensor) -> Tensor:
        scores = torch.tanh(z) @ weights["leave.weight"].T + weights["leave.bias"]
        return F.cross_entropy(scores, target)

    def to_dense(z: Tensor) -> Tensor:
        return torch.tanh(z).flatten(1) @ weights["dense.weight"].T + weights["dense.bias"]

    def after_conv(z: Tensor) -> Tensor:
        scale, shift = weights["norm1d.weight"], weights["norm1d.bias"]
        return after_dense(oracles.normalised(to_dense(z), scale, shift, eps))

    first = weights["norm2d.weight"], weights["norm2d.bias"]
    dense = to_dense(oracles.normalised(conv, *first, eps))
    second = weights["norm1d.weight"], weights["norm1d.bias"]
    sides = oracles.normalisation_sides(after_conv, conv, *first, eps)
    more = oracles.normalisation_sides(after_dense, dense, *second, eps)
    return {name: sides[name] + more[name] for name in SIDES}


@pytest.mark.parametrize("eps", [TINY, 1e-5, 0.1])
def test_all_four_sides_agree_with_dense_hessians(eps: float) -> None:
    model, raws = cases.SmallBatchNormNet(eps=eps), cases.image_data(5, 4)
    expected = expected_sides(model, *raws[0])
    with surveyed(model, raws) as site:
        found = taken(NormalisationBounds(), site)
    assert found["unit"].tolist() == [f"norm2d:{i}" for i in range(3)] + [
        f"norm1d:{i}" for i in range(6)
    ]
    for name in SIDES:
        # Sums of terms of both signs, of which little may be left.
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-7, atol=1e-13, err_msg=name)


def test_theorems_4_1_and_4_2_are_identities_without_epsilon_and_off_by_it_else() -> None:
    raws = cases.image_data(8, 4)
    with surveyed(cases.SmallBatchNormNet(eps=TINY), raws) as site:
        exact = taken(NormalisationBounds(), site)
    np.testing.assert_allclose(exact["lipschitz_left"], exact["lipschitz_right"], rtol=1e-9)
    np.testing.assert_allclose(
        exact["smoothness_left"], exact["smoothness_right"], rtol=1e-7, atol=1e-14
    )
    assert np.abs(exact["smoothness_left"]).min() > 1e-12
    eps = 1e-3
    with surveyed(cases.SmallBatchNormNet(eps=eps), raws) as site:
        found = taken(NormalisationBounds(), site)
    assert exact["variance"].min() > 0.1
    gap = np.abs(found["lipschitz_left"] / found["lipschitz_right"] - 1)
    scale = (found["lipschitz_right"] + found["lipschitz_left"]) / found["lipschitz_right"]
    behind = eps / found["variance"]
    assert gap.max() > 1e-9
    # ŷ is shorter than √m by ε/σ²: the removed part, however large against what is left, is off
    # by twice that at first order.
    assert (gap <= 60 * behind * scale).all()


def test_float32_runs_are_measured_in_float64() -> None:
    raws = cases.image_data(8, 4)
    model = cases.SmallBatchNormNet(eps=TINY).float()
    with surveyed(model, raws) as site:
        found = taken(NormalisationBounds(), site)
    np.testing.assert_allclose(found["lipschitz_left"], found["lipschitz_right"], rtol=1e-9)


def test_only_the_first_batch_counts() -> None:
    raws = cases.image_data(8, 4)
    with surveyed(cases.SmallBatchNormNet(), raws) as site:
        alone = taken(NormalisationBounds(), site)
    with surveyed(cases.SmallBatchNormNet(), raws + cases.image_data(3, 4, seed=9)) as site:
        among = taken(NormalisationBounds(), site)
    for name in SIDES:
        np.testing.assert_allclose(alone[name], among[name], rtol=1e-12)


def test_a_few_units_are_chosen_with_the_seed_and_the_others_are_nan() -> None:
    raws = cases.image_data(8, 4)
    chosen = []
    for seed in (0, 0, 1, 2, 3):
        with surveyed(cases.SmallBatchNormNet(), raws, seed=seed) as site:
            found = taken(NormalisationBounds(units=2), site)
        present = np.isfinite(found["smoothness_left"])
        assert (present == np.isfinite(found["smoothness_right"])).all()
        assert present[:3].sum() == present[3:].sum() == 2
        assert np.isfinite(found["lipschitz_left"]).all()
        chosen.append(tuple(np.flatnonzero(present)))
    assert chosen[0] == chosen[1]
    assert len(set(chosen)) > 1


def test_the_minimax_form_of_4_1_holds_and_its_weight_gradient_is_the_networks() -> None:
    model, raws = cases.SmallBatchNormNet(), cases.image_data(8, 4)
    oracles.mean_cross_entropy(model, raws).backward()
    conv = model.conv.weight.grad.flatten(1).square().sum(1)
    dense = model.dense.weight.grad.square().sum(1)
    model.zero_grad(set_to_none=True)
    x = raws[0][0]
    patches = F.unfold(x, 3, padding=1).transpose(1, 2).reshape(-1, 18)
    with surveyed(model, raws) as site:
        found = taken(NormalisationBounds(), site)
    expected = torch.cat([conv, dense]).numpy()
    np.testing.assert_allclose(found["weight_lipschitz"], expected, rtol=1e-8, atol=1e-18)
    assert found["input_norm"][0] == pytest.approx(float(torch.linalg.matrix_norm(patches, 2)))
    bound = found["input_norm"] ** 2 * found["lipschitz_left"]
    assert (found["weight_lipschitz"] <= bound * (1 + 1e-9)).all()


def test_the_weight_quadratic_form_is_that_of_the_dense_weight_hessian() -> None:
    model, raws = cases.SmallBatchNormNet(), cases.image_data(8, 4)
    weights = {name: p.detach() for name, p in model.named_parameters()}
    x, target = raws[0]
    plain = cases.SmallBatchNormNet()
    for layer in (plain.norm1d, plain.norm2d):
        layer.track_running_stats = False  # counting in place is not for transforms

    def loss_of_unit(row: Tensor, unit: int) -> Tensor:
        matrix = torch.cat(
            [weights["dense.weight"][:unit], row[None], weights["dense.weight"][unit + 1 :]]
        )
        changed = {**weights, "dense.weight": matrix}
        return F.cross_entropy(torch.func.functional_call(plain, changed, (x,)), target)

    with surveyed(model, raws) as site:
        found = taken(NormalisationBounds(), site)
    for unit in (0, 5):
        row = weights["dense.weight"][unit]
        of_row = partial(loss_of_unit, unit=unit)
        slope = torch.autograd.functional.jacobian(of_row, row)
        curve = torch.autograd.functional.hessian(of_row, row)
        assert found["weight_smoothness"][3 + unit] == pytest.approx(
            float(slope @ curve @ slope), rel=1e-7, abs=1e-14
        )


def test_facts_c_1_and_c_2_hold_for_torchs_batch_norm() -> None:
    torch.manual_seed(0)
    layer = nn.BatchNorm1d(2, eps=TINY).double()
    y = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.5, -0.7]))
    z = layer(y)
    behind = torch.randn(6, 2, dtype=torch.float64)
    (slope,) = torch.autograd.grad((z * behind).sum(), y)
    for unit, gamma in enumerate([1.5, -0.7]):
        values, g, m = y.detach()[:, unit], behind[:, unit], 6
        sigma = values.std(correction=0)
        hat = (values - values.mean()) / sigma
        fact_1 = gamma / (m * sigma) * (m * g - g.sum() - hat * (g @ hat))
        torch.testing.assert_close(slope[:, unit], fact_1)
        jacobian = torch.autograd.functional.jacobian(layer, y.detach())[:, unit, :, unit]
        outer = torch.eye(m, dtype=torch.float64) - 1 / m - torch.outer(hat, hat) / m
        torch.testing.assert_close(jacobian, gamma / sigma * outer)


def test_it_is_refused_without_batch_statistics() -> None:
    with surveyed(cases.Tanh3(), cases.vector_data(5)) as site:
        assert "no BatchNorm" in NormalisationBounds().refusal(site)
    for mode in ("running", "frozen"):
        with surveyed(cases.SmallBatchNormNet(), cases.image_data(5, 4), norm_mode=mode) as site:
            assert mode in NormalisationBounds().refusal(site)


def test_a_negative_number_of_units_is_wrong_usage() -> None:
    with pytest.raises(SpecError, match="number of units"):
        NormalisationBounds(units=-1)
