from __future__ import annotations

import math
import warnings

import cases
import numpy as np
import oracles
import pytest
import torch
from sites import surveyed, taken
from torch import Tensor, nn

from landscape_cli.errors import SpecError
from landscape_cli.measures.hessian_spectrum import HessianSpectrum

NETS = {
    "dense": (cases.Tanh3, oracles.tanh3, lambda: cases.vector_data(13)),
    "convolutional": (cases.SmallConvNet, oracles.small_conv, lambda: cases.image_data(6, 6)),
    "batch norm": (
        cases.SmallBatchNormNet,
        oracles.small_norm,
        lambda: cases.image_data(8, 4) + cases.image_data(5, 4, seed=9),
    ),
}


def dense(net: str) -> tuple[nn.Module, list, Tensor]:
    build, forward, data = NETS[net]
    model, raws = build(), data()
    weights = {name: p.detach() for name, p in model.named_parameters()}
    loss = oracles.cross_entropy_of(forward, raws)
    return model, raws, oracles.parameter_hessian(loss, weights, list(weights))


@pytest.mark.parametrize("net", NETS)
def test_eigenvalues_are_those_of_the_dense_hessian_and_the_trace_is_within_its_error(
    net: str,
) -> None:
    model, raws, matrix = dense(net)
    expected = torch.linalg.eigvalsh(matrix).numpy()
    with surveyed(model, raws) as site:
        found = taken(HessianSpectrum(k=4, probes=16, steps=20), site)
        assert not [text for text in site.notices if "converged" in text]
    np.testing.assert_allclose(found["eigenvalue"], expected[::-1][:4], rtol=1e-7)
    assert found["smallest"] == pytest.approx(expected[0], rel=1e-6)
    # A standard error from 16 probes: four of them are as good as certain.
    assert abs(found["trace"] - expected.sum()) < 4 * found["trace_error"]
    assert found["trace_error"] < 0.3 * abs(expected).sum()
    width = np.diff(found["density_eigenvalue"])[0]
    assert found["density"].sum() * width == pytest.approx(1, abs=1e-3)
    mean = (found["density"] * found["density_eigenvalue"]).sum() * width
    assert mean * len(expected) == pytest.approx(expected.sum(), abs=0.5 * abs(expected).sum())


def test_the_quadrature_gives_each_probes_first_moments_exactly() -> None:
    model, raws, matrix = dense("dense")
    with surveyed(model, raws) as site:
        found = taken(HessianSpectrum(probes=3, steps=5), site)
    nodes, weights = found["quadrature_node"], found["quadrature_weight"]
    np.testing.assert_allclose(weights.sum(1), 1)
    # The mean over all sign vectors of vᵀH²v/n is ‖H‖²/n; over three of them it is near.
    second = (weights * nodes**2).sum(1)
    assert second.mean() == pytest.approx(float(matrix.square().sum()) / len(matrix), rel=0.8)


@pytest.mark.parametrize("net", NETS)
def test_eigenvalues_agree_with_curvlinops(net: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        curvlinops = pytest.importorskip("curvlinops")
    sparse = pytest.importorskip("scipy.sparse.linalg")
    model, raws, _ = dense(net)
    # Its products through batch statistics are not symmetric (0.3 where 1e-15 is due), so that a
    # net with BatchNorm is held against it in evaluation mode; against a dense Hessian above.
    mode = "running" if net == "batch norm" else "batch"
    model.train(mode == "batch")
    raws = raws[:1]
    peer = curvlinops.HessianLinearOperator(
        model, nn.CrossEntropyLoss(), list(model.parameters()), raws, check_deterministic=False
    ).to_scipy(dtype=np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)  # torch 2.15 about its own torch.jit
        expected = sparse.eigsh(peer, k=3, which="LA", return_eigenvectors=False)
    with surveyed(model, raws, norm_mode=mode) as site:
        found = taken(HessianSpectrum(k=3), site)
    np.testing.assert_allclose(found["eigenvalue"], np.sort(expected)[::-1], rtol=1e-6)


def test_eigenvalues_and_trace_agree_with_pyhessian() -> None:
    pyhessian = pytest.importorskip("pyhessian")
    model, raws, matrix = dense("dense")
    with surveyed(model, raws) as site:
        found = taken(HessianSpectrum(k=2, probes=64, steps=2), site)
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore", UserWarning)  # it lets gradients refer to themselves
        torch.manual_seed(0)
        peer = pyhessian.hessian(model, nn.CrossEntropyLoss(), data=raws[0], cuda=False)
        values, _ = peer.eigenvalues(maxIter=2000, tol=1e-12, top_n=2)
        traces = peer.trace(maxIter=200, tol=1e-9)
    # Power iteration stops on a change of 1e-12: the values are good to about its root.
    np.testing.assert_allclose(found["eigenvalue"], values, rtol=1e-5)
    error = np.std(traces) / np.sqrt(len(traces))
    assert abs(found["trace"] - np.mean(traces)) < 4 * (found["trace_error"] + error)
    assert abs(found["trace"] - float(torch.trace(matrix))) < 4 * found["trace_error"]


def test_a_quadratic_has_the_spectrum_and_exact_trace_of_its_matrix() -> None:
    model = cases.quadratic(7)
    expected = torch.linalg.eigvalsh(model.matrix).numpy()
    with surveyed(model, cases.one_batch(), "model") as site:
        found = taken(HessianSpectrum(k=9, probes=2), site)
    np.testing.assert_allclose(found["eigenvalue"][:7], expected[::-1], rtol=1e-9)
    assert np.isnan(found["eigenvalue"][7:]).all()
    assert found["trace"] == pytest.approx(expected.sum())
    assert found["trace_error"] == 0


def test_float32_gives_eigenvalues_to_its_precision() -> None:
    model, raws, matrix = dense("dense")
    expected = torch.linalg.eigvalsh(matrix).flip(0)[:3].numpy()
    with surveyed(model.float(), raws) as site:
        found = taken(HessianSpectrum(k=3), site)
    # Products are good to 1e-6 of the largest eigenvalue.
    np.testing.assert_allclose(found["eigenvalue"], expected, atol=1e-5 * expected[0], rtol=0)


def test_the_same_seed_repeats_and_another_gives_other_probes() -> None:
    model, raws, _ = dense("convolutional")
    with surveyed(model, raws) as site:
        first, again, other = (
            taken(HessianSpectrum(probes=2, steps=4, seed=seed), site) for seed in (1, 1, 2)
        )
    for name, values in first.items():
        np.testing.assert_array_equal(values, again[name], err_msg=name)
    assert first["trace"] != other["trace"]
    np.testing.assert_allclose(first["eigenvalue"], other["eigenvalue"], rtol=1e-6)


def test_eigenvalues_that_have_not_converged_are_given_and_said_to_have_not() -> None:
    model, raws, _ = dense("batch norm")
    with surveyed(model, raws) as site:
        found = taken(HessianSpectrum(products=1, probes=1, steps=2), site)
        assert any("not converged in 1 products" in text for text in site.notices)
    assert math.isnan(found["trace_error"])
    assert (found["residual"] > 0).any()


class Once(torch.autograd.Function):
    """The identity, which says that it cannot be differentiated twice."""

    @staticmethod
    def forward(_ctx, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(_ctx, grad: Tensor) -> Tensor:
        return grad


def test_a_model_without_a_second_derivative_is_refused_in_one_line() -> None:
    class OnlyOnce(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            cases.fill_randomly(self, 0)

        def forward(self, x: Tensor) -> Tensor:
            return Once.apply(self.layer(x))

    with surveyed(OnlyOnce(), cases.vector_data(5)) as site:
        refusal = HessianSpectrum().refusal(site)
    assert "cannot be differentiated twice" in refusal
    assert "\n" not in refusal


@pytest.mark.parametrize("option", ["k", "probes", "steps", "products"])
def test_impossible_options_are_wrong_usage(option: str) -> None:
    with pytest.raises(SpecError, match=f"{option} is not a whole number"):
        HessianSpectrum(**{option: 0})
