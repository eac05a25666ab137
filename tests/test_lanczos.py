from __future__ import annotations

import pytest
import torch
from torch import Tensor

from landscape_cli.lanczos import SymmetricMatrix, quadrature, top_eigenpairs


def symmetric(values: list[float] | Tensor, seed: int = 0) -> Tensor:
    """Return a symmetric matrix with a given spectrum, in random directions."""
    generator = torch.Generator().manual_seed(seed)
    spectrum = torch.as_tensor(values, dtype=torch.float64)
    square = torch.randn(len(spectrum), len(spectrum), generator=generator, dtype=torch.float64)
    q = torch.linalg.qr(square).Q
    matrix = q @ torch.diag(spectrum) @ q.T
    return (matrix + matrix.T) / 2


def known(matrix: Tensor, store: torch.dtype = torch.float64) -> SymmetricMatrix:
    return SymmetricMatrix(lambda v: matrix @ v, len(matrix), store=store)


SPECTRA = {
    "small": torch.linspace(-2, 5, 6),
    "wide": torch.cat([torch.linspace(-0.1, 0.1, 190), torch.tensor([3.0, 2.5, 1.0, -2.0])]),
    "uniform": torch.linspace(-1, 1, 300),
    "negative": torch.linspace(-5, -1, 80),
    "of low rank": torch.cat([torch.zeros(97), torch.tensor([4.0, 2.0, 1.0])]),
}


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_the_largest_eigenpairs_are_those_of_the_dense_matrix(spectrum: str) -> None:
    matrix = symmetric(SPECTRA[spectrum])
    expected = torch.linalg.eigvalsh(matrix)
    found = top_eigenpairs(known(matrix), 4, seed=1, max_products=4000)
    assert found.converged
    scale = float(expected.abs().max())
    torch.testing.assert_close(found.values, expected.flip(0)[:4], atol=1e-9 * scale, rtol=0)
    assert found.smallest == pytest.approx(float(expected[0]), abs=1e-9 * scale)
    residuals = matrix @ found.vectors.T - found.vectors.T * found.values
    assert float(residuals.norm(dim=0).max()) <= 1e-7 * scale
    torch.testing.assert_close(
        found.vectors @ found.vectors.T, torch.eye(4, dtype=torch.float64), atol=1e-9, rtol=0
    )


def test_a_multiple_eigenvalue_is_found_as_often_as_it_is_there() -> None:
    matrix = symmetric([7.0, 7.0, 7.0, 1.0, 1.0, -3.0, -3.0, 0.0])
    found = top_eigenpairs(known(matrix), 5, seed=0)
    torch.testing.assert_close(
        found.values, torch.tensor([7.0, 7.0, 7.0, 1.0, 1.0], dtype=torch.float64)
    )
    assert found.complete is not None
    assert float(found.complete.sum()) == pytest.approx(float(torch.trace(matrix)))


def test_the_zero_matrix_has_eigenvalues_of_zero() -> None:
    found = top_eigenpairs(known(torch.zeros(30, 30, dtype=torch.float64)), 3, seed=0)
    assert found.converged
    assert (found.values == 0).all()


def test_what_has_not_converged_is_said_to_have_not() -> None:
    matrix = symmetric(torch.linspace(0, 1, 400))
    products = []
    counted = SymmetricMatrix(lambda v: (products.append(1), matrix @ v)[1], 400)
    found = top_eigenpairs(counted, 3, seed=0, max_products=20)
    assert len(products) == 20
    assert not found.converged
    assert (found.residuals > 1e-8).any()
    assert (found.values < 1).all()


def test_a_narrow_basis_still_gives_eigenvalues_to_its_precision() -> None:
    matrix = symmetric(SPECTRA["wide"])
    found = top_eigenpairs(known(matrix, torch.float32), 2, seed=0, tolerance=1e-5)
    assert found.converged
    torch.testing.assert_close(
        found.values, torch.tensor([3.0, 2.5], dtype=torch.float64), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("steps", [1, 4, 9])
def test_quadrature_is_exact_for_polynomials_below_twice_its_nodes(steps: int) -> None:
    matrix = symmetric(torch.linspace(-1, 2, 40))
    start = known(matrix).drawn(torch.Generator().manual_seed(3))
    found = quadrature(known(matrix), start, steps)
    power = start.clone()
    for degree in range(2 * steps):
        expected = float(start @ power)
        assert float((found.weights * found.nodes**degree).sum()) == pytest.approx(
            expected, rel=1e-10, abs=1e-12
        )
        power = matrix @ power


def test_quadrature_stops_where_the_space_closes() -> None:
    matrix = torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64))
    start = torch.tensor([0.6, 0.8, 0.0, 0.0], dtype=torch.float64)
    found = quadrature(known(matrix), start, 4)
    torch.testing.assert_close(found.nodes, torch.tensor([1.0, 2.0], dtype=torch.float64))
    torch.testing.assert_close(found.weights, torch.tensor([0.36, 0.64], dtype=torch.float64))


def test_it_stops_as_soon_as_what_is_wanted_has_converged() -> None:
    bulk = torch.linspace(-0.01, 0.01, 300)
    matrix = symmetric(torch.cat([bulk, torch.tensor([9.0, 5.0, -4.0])]))
    products = []
    counted = SymmetricMatrix(lambda v: (products.append(1), matrix @ v)[1], len(matrix))
    found = top_eigenpairs(counted, 2, seed=0, tolerance=1e-3)
    assert found.converged
    assert len(products) <= 8
