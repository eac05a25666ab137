from __future__ import annotations

import math

import cases
import numpy as np
import oracles
import pytest
import torch
import torch.nn.functional as F
from sites import Raws, surveyed, taken
from torch import Tensor, nn

from landscape_cli.errors import SpecError
from landscape_cli.measures import conditioning
from landscape_cli.measures.conditioning import Conditioning


def inputs_of(model: nn.Module, raws: Raws, layer: str) -> Tensor:
    found: list[Tensor] = []
    hook = lambda _, args: found.append(args[0].detach())  # noqa: E731
    handle = model.get_submodule(layer).register_forward_pre_hook(hook)
    with torch.no_grad():
        for x, _ in raws:
            model(x)
    handle.remove()
    return torch.cat(found)


def conv_rows(inputs: Tensor, group: int, channels: int, **options: int) -> Tensor:
    part = inputs[:, group * channels : (group + 1) * channels]
    patches = F.unfold(part, 3, **options)
    return patches.transpose(1, 2).reshape(-1, patches.shape[1])


NETS = {
    "dense": (cases.Tanh3, oracles.tanh3, lambda: cases.vector_data(30), 5 + 5 + 3),
    "dense with fewer rows than weights": (
        cases.Tanh3,
        oracles.tanh3,
        lambda: cases.vector_data(4),
        13,
    ),
    "two batches": (
        cases.Tanh3,
        oracles.tanh3,
        lambda: cases.vector_data(12) + cases.vector_data(7, seed=9),
        13,
    ),
    "convolutional": (
        cases.SmallConvNet,
        oracles.small_conv,
        lambda: cases.image_data(9, 6),
        4 + 4 + 3,
    ),
    "convolutional, few rows": (
        cases.SmallConvNet,
        oracles.small_conv,
        lambda: cases.image_data(2, 6) + cases.image_data(1, 6, seed=9),
        11,
    ),
    "batch norm": (
        cases.SmallBatchNormNet,
        oracles.small_norm,
        lambda: cases.image_data(11, 4) + cases.image_data(6, 4, seed=9),
        3 + 6 + 3,
    ),
}


def rows_of(model: nn.Module, raws: Raws, layer: str, unit: int) -> Tensor:
    inputs = inputs_of(model, raws, layer)
    if layer == "first":
        return conv_rows(inputs, 0, 2, padding=1)
    if layer == "second":
        return conv_rows(inputs, unit // 2, 2, stride=2)
    if layer == "conv":
        return conv_rows(inputs, 0, 2, padding=1)
    return inputs


@pytest.mark.parametrize("net", NETS)
def test_every_condition_number_is_that_of_explicit_dense_matrices(net: str) -> None:
    build, forward, data, count = NETS[net]
    model, raws = build(), data()
    weights = {name: p.detach() for name, p in model.named_parameters()}
    loss = oracles.cross_entropy_of(forward, raws)
    expected = []
    with surveyed(model, raws) as site:
        found = taken(Conditioning(), site)
    assert len(found["unit"]) == count
    for label in found["unit"]:
        layer, unit = label.rsplit(":", 1)
        hessian = oracles.unit_hessian(loss, weights, layer, int(unit))
        rows = rows_of(model, raws, layer, int(unit))
        p = oracles.preconditioner(rows)
        rank = min(len(rows), len(hessian))
        behind = oracles.condition(p.T @ hessian @ p, rank)
        expected.append((oracles.condition(hessian, rank), behind))
        scales = torch.diagonal(torch.linalg.inv(p))
        index = list(found["unit"]).index(label)
        assert found["scaling"][index] == pytest.approx(float(scales.max() / scales.min()))
        assert found["constant_features"][index] == 0
    for name, values in zip(("hessian", "preconditioned"), np.array(expected).T, strict=True):
        # The smallest eigenvalue carries the rounding of the largest: some ε·κ of itself.
        assert (np.abs(found[name] / values - 1) <= 1e-6 + 1e-13 * values).all(), name


def test_the_dense_hessian_is_the_product_of_proposition_2() -> None:
    # With one output and squared loss S = 2/N: κ(H) = κ(Ĥ)², κ(PᵀHP) = κ(Ĝ)².
    torch.manual_seed(0)
    layer = nn.Linear(4, 1).double()
    x = torch.randn(30, 4, dtype=torch.float64) * torch.tensor([1.0, 10.0, 0.1, 3.0]) + 2.0
    with surveyed(layer, [(x, torch.zeros(30, 1, dtype=torch.float64))], "mse") as site:
        found = taken(Conditioning(), site)
    extended = torch.cat([torch.ones(30, 1, dtype=torch.float64), x], 1)
    values = torch.linalg.svdvals(extended)
    assert found["extended"][0] == pytest.approx(float(values[0] / values[-1]))
    assert found["hessian"][0] == pytest.approx(found["extended"][0] ** 2)
    assert found["preconditioned"][0] == pytest.approx(found["normalised"][0] ** 2)
    assert found["nonzero"][0] == 5
    assert found["unit"].tolist() == ["(model):0"]


@pytest.mark.parametrize("net", ["dense", "convolutional", "batch norm"])
@pytest.mark.parametrize("seed", range(3))
def test_the_inequalities_of_theorem_4_and_proposition_11_hold(net: str, seed: int) -> None:
    build, _, data, _ = NETS[net]
    model = build(seed=seed)
    with surveyed(model, data()) as site:
        found = taken(Conditioning(), site)
    full = np.isfinite(found["extended"])
    assert full.any()
    slack = 1 + 1e-9
    assert (found["centred"][full] <= found["extended"][full] * slack).all()
    sizes = {
        "enter": 5,
        "middle": 6,
        "leave": 6,
        "first": 19,
        "second": 19,
        "conv": 19,
        "dense": 49,
    }
    if net == "convolutional":
        sizes["leave"] = 17
    if net == "batch norm":
        sizes["leave"] = 7
    size = np.array([sizes[label.split(":")[0]] for label in found["unit"]])
    bound = np.sqrt(size) * np.minimum(found["centred"], found["normalised"])
    assert (found["normalised"][full] <= bound[full] * slack).all()
    product = found["normalised"] * found["scaling"]
    assert (found["centred"][full] <= product[full] * slack).all()


def test_a_convex_loss_behind_the_last_layer_obeys_proposition_11() -> None:
    # κ(ĤᵀSĤ) ≤ κ(Ĥ)²κ(S) with S of the softmax: p(1 − p)/N on its diagonal.
    model, raws = cases.Tanh3(), cases.vector_data(30)
    with torch.no_grad():
        p = torch.softmax(model(raws[0][0]), 1)
    s = p * (1 - p)
    with surveyed(model, raws) as site:
        found = taken(Conditioning(layers="leave"), site)
    bound = found["extended"] ** 2 * (s.amax(0) / s.amin(0)).numpy()
    assert (found["hessian"] <= bound * (1 + 1e-9)).all()
    bound = found["normalised"] ** 2 * (s.amax(0) / s.amin(0)).numpy()
    assert (found["preconditioned"] <= bound * (1 + 1e-9)).all()


def test_a_float32_run_is_conditioned_in_float64() -> None:
    raws = cases.vector_data(30)
    with surveyed(cases.Tanh3(), raws) as site:
        wide = taken(Conditioning(), site)
    with surveyed(cases.Tanh3().float(), raws) as site:
        narrow = taken(Conditioning(), site)
    # The weights and data are rounded to float32, the rest is not: κ moves by 1e-7 of itself
    # times what it amplifies.
    np.testing.assert_allclose(narrow["hessian"], wide["hessian"], rtol=1e-2)
    np.testing.assert_array_equal(narrow["nonzero"], wide["nonzero"])


def test_constant_features_are_left_out_and_counted() -> None:
    model, (x, y) = cases.Tanh3(), cases.vector_data(30)[0]
    held = x.clone()
    held[:, 1] = 0.1
    with surveyed(model, [(held, y)]) as site:
        found = taken(Conditioning(layers="enter"), site)
    assert (found["constant_features"] == 1).all()
    weights = {name: p.detach() for name, p in model.named_parameters()}
    loss = oracles.cross_entropy_of(oracles.tanh3, [(held, y)])
    kept = [0, 1, 3, 4]
    for unit in range(5):
        hessian = oracles.unit_hessian(loss, weights, "enter", unit)[kept][:, kept]
        p = oracles.preconditioner(held[:, [0, 2, 3]])
        assert found["hessian"][unit] == pytest.approx(oracles.condition(hessian), rel=1e-8)
        assert found["preconditioned"][unit] == pytest.approx(
            oracles.condition(p.T @ hessian @ p), rel=1e-8
        )


def test_wide_layers_give_their_first_unit_and_say_what_is_left_out() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1025, 3), nn.Tanh(), nn.Linear(3, 3)).double()
    with surveyed(model, cases.vector_data(4, features=1025)) as site:
        found = taken(Conditioning(), site)
        notices = list(site.notices)
    assert found["unit"].tolist() == ["0:0", "2:0", "2:1", "2:2"]
    assert notices == ["conditioning: 0 has 1025 weights a unit: units 1 to 2 left out"]
    assert math.isnan(found["extended"][0])


def test_a_layer_that_a_pass_uses_twice_is_left_out_by_name() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.again = nn.Linear(4, 4)
            self.leave = nn.Linear(4, 3)
            cases.fill_randomly(self, 0)

        def forward(self, x: Tensor) -> Tensor:
            return self.leave(torch.tanh(self.again(torch.tanh(self.again(x)))))

    with surveyed(Twice(), cases.vector_data(9)) as site:
        found = taken(Conditioning(), site)
        notices = list(site.notices)
    assert [label.split(":")[0] for label in found["unit"]] == ["leave"] * 3
    assert notices == ["conditioning: again is left out: a forward pass uses it 2 times"]


def test_layers_and_units_can_be_chosen() -> None:
    with surveyed(cases.Tanh3(), cases.vector_data(9)) as site:
        found = taken(Conditioning(layers="l*", units=2), site)
        assert "no dense or convolutional layer named 'q*'" in Conditioning(layers="q*").refusal(
            site
        )
    assert found["unit"].tolist() == ["leave:0", "leave:1"]


def test_impossible_options_are_wrong_usage() -> None:
    with pytest.raises(SpecError, match="number of units"):
        Conditioning(units=-1)
    with pytest.raises(SpecError, match="not a pattern"):
        Conditioning(layers=3)


def test_units_measured_one_by_one_have_the_numbers_of_those_measured_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for build, data in (
        (cases.SmallConvNet, cases.image_data(9, 6)),
        (cases.SmallBatchNormNet, cases.image_data(9, 4)),
    ):
        with surveyed(build(), data) as site:
            together = taken(Conditioning(), site)
        with surveyed(build(), data) as site, monkeypatch.context() as patch:
            patch.setattr(conditioning, "CORE_ELEMENTS", 1)
            alone = taken(Conditioning(), site)
        for name in ("hessian", "preconditioned"):
            np.testing.assert_allclose(alone[name], together[name], rtol=1e-6)


def test_weights_that_are_not_finite_have_no_condition_number() -> None:
    model = cases.Tanh3()
    with torch.no_grad():
        model.leave.weight[1, 1] = math.nan
    with surveyed(model, cases.vector_data(30)) as site:
        found = taken(Conditioning(), site)
    assert np.isnan(found["hessian"]).all()
    assert (found["nonzero"] == 0).all()


def test_a_layer_whose_inputs_are_too_many_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditioning, "MATRIX_ELEMENTS", 1)
    with surveyed(cases.Tanh3(), cases.vector_data(9)) as site:
        assert Conditioning().measure(site) == {}
        assert len(site.notices) == 3
        assert "leave is left out: its inputs make a matrix of 45 numbers" in site.notices[-1]
