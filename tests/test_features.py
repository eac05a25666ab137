from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from landscape_cli.features import Compression, Features, spectral_condition


def rows(count: int, features: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (count, features)
    return (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        @ torch.diag(torch.logspace(0, 2, features, dtype=torch.float64))
        + 3.0
    )


def test_centring_and_scaling_are_the_papers() -> None:
    h = rows(20, 3)
    found = Features.of(h)
    np.testing.assert_allclose(found.deviations, h.numpy().std(0))
    np.testing.assert_allclose(found.centred[:, 1:].mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(found.normalised[:, 1:].norm(dim=0), math.sqrt(20))
    assert (found.extended[:, 0] == 1).all()
    assert found.scaling() == pytest.approx(
        float(max(1, found.deviations.max()) / min(1, found.deviations.min()))
    )


def test_matrix_conditions_are_those_of_numpy_and_nan_without_full_column_rank() -> None:
    found = Features.of(rows(20, 3))
    matrices = (found.extended, found.centred, found.normalised)
    expected = [np.linalg.cond(matrix.numpy()) for matrix in matrices]
    np.testing.assert_allclose(found.matrix_conditions(), expected)
    assert np.isnan(Features.of(rows(3, 3)).matrix_conditions()).all()
    twice = torch.cat([rows(20, 2), rows(20, 2)], 1)
    assert np.isnan(Features.of(twice).matrix_conditions()).all()


def test_features_that_do_not_vary_are_left_out_whatever_their_rounding() -> None:
    h = rows(21, 4)
    h[:, 2] = 0.1  # its mean over 21 rows is not 0.1 in binary
    found = Features.of(h)
    assert found.left_out == 1
    assert found.size == 4
    assert math.isfinite(found.scaling())


@pytest.mark.parametrize("count", [3, 5, 30])
def test_compressed_spectra_are_those_of_the_products(count: int) -> None:
    found = Features.of(rows(count, 4))
    s = rows(count, count, seed=1)
    s = s + s.T
    compression = Compression(found)
    core = s if compression.basis is None else compression.basis.T @ s @ compression.basis
    spectra = compression.spectra(core[None])
    for factor, values in zip((found.extended, found.normalised), spectra, strict=True):
        product = factor.T @ s @ factor
        expected = torch.linalg.eigvalsh((product + product.T) / 2)
        nonzero = expected[expected.abs() > 1e-9 * expected.abs().max()]
        torch.testing.assert_close(values[0], nonzero, rtol=1e-8, atol=0)


def test_kappa_is_over_what_exceeds_n_epsilon_of_the_largest() -> None:
    assert spectral_condition([8.0, -2.0, 0.0], 3) == (4.0, 2)
    epsilon = float(np.finfo(np.float64).eps)
    just_under, just_over = 0.99 * 10 * epsilon, 1.01 * 10 * epsilon
    assert spectral_condition([1.0, just_under], 10) == (1.0, 1)
    kappa, count = spectral_condition([1.0, just_over], 10)
    assert count == 2
    assert kappa == pytest.approx(1 / just_over)


@pytest.mark.parametrize("values", [[], [0.0, 0.0], [math.nan, 1.0], [math.inf]])
def test_nothing_nonzero_and_what_is_not_finite_have_no_kappa(values: list[float]) -> None:
    kappa, count = spectral_condition(values, 2)
    assert math.isnan(kappa)
    assert count == 0
