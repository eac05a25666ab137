"""Lanczos' method with full reorthogonalisation: eigenpairs, and quadrature of a spectrum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 1 << 20
"""Entries of a basis that are widened to float64 together."""
BREAKDOWN = 1e-13
"""Length of a residual, relative to the matrix, at which nothing is left to go on with."""


@dataclass(frozen=True)
class SymmetricMatrix:
    """A symmetric matrix that is known by its products with vectors.

    Attributes:
        product: float64 of shape (n,) to the same.
        size: n.
        device: where vectors lie.
        store: type that many vectors are kept in.
    """

    product: Callable[[Tensor], Tensor]
    size: int
    device: torch.device | str = "cpu"
    store: torch.dtype = torch.float64

    def drawn(self, generator: torch.Generator, *, signs: bool = False) -> Tensor:
        """Return a random vector of unit length, the same on every device."""
        if signs:
            bits = torch.randint(0, 2, (self.size,), generator=generator)
            vector = bits.to(self.device, torch.float64) * 2 - 1
        else:
            values = torch.randn(self.size, generator=generator, dtype=torch.float64)
            vector = values.to(self.device)
        unit: Tensor = vector / torch.linalg.vector_norm(vector)
        return unit


class Basis:
    """Orthonormal vectors, kept in a narrow type, multiplied in float64."""

    def __init__(self, matrix: SymmetricMatrix, capacity: int) -> None:
        shape = (capacity, matrix.size)
        self._rows = torch.zeros(shape, dtype=matrix.store, device=matrix.device)
        self.count = 0

    def __getitem__(self, index: int) -> Tensor:
        """Return one vector in float64."""
        return self._rows[index].double()

    def append(self, vector: Tensor) -> Tensor:
        """Add a vector that is orthogonal to the others, at length one; return it as kept."""
        self._rows[self.count] = vector / torch.linalg.vector_norm(vector)
        self.count += 1
        return self[self.count - 1]

    def split(self, vector: Tensor) -> tuple[Tensor, Tensor]:
        """Return what of a vector is orthogonal to the basis, and its shares ⟨v_i, x⟩."""
        shares = self._inner(vector)
        rest = self._without(vector, shares)
        again = self._inner(rest)  # twice is enough (Kahan and Parlett)
        return self._without(rest, again), shares + again

    def _inner(self, vector: Tensor) -> Tensor:
        found = vector.new_zeros(self.count)
        for start in range(0, len(vector), BLOCK):
            part = self._rows[: self.count, start : start + BLOCK].double()
            found += part @ vector[start : start + BLOCK]
        return found

    def _without(self, vector: Tensor, shares: Tensor) -> Tensor:
        rest = vector.clone()
        for start in range(0, len(vector), BLOCK):
            part = self._rows[: self.count, start : start + BLOCK].double()
            rest[start : start + BLOCK] -= shares @ part
        return rest

    def combined(self, weights: Tensor) -> Tensor:
        """Return combinations of the vectors as rows, weights of shape (count, kept)."""
        columns = weights.to(self._rows.device).T
        parts = [
            (columns @ self._rows[: self.count, start : start + BLOCK].double())
            for start in range(0, self._rows.shape[1], BLOCK)
        ]
        return torch.cat(parts, dim=1)

    def replace(self, rows: Tensor) -> None:
        """Keep other vectors in the places of the present ones."""
        self.count = len(rows)
        self._rows[: self.count] = rows.to(self._rows.dtype)


@dataclass(frozen=True)
class Eigenpairs:
    """The largest eigenvalues of a symmetric matrix with their vectors, and its smallest.

    Attributes:
        values: the algebraically largest, descending, shape (k,).
        vectors: of unit length, shape (k, n).
        residuals: ‖Hv − λv‖ of each, shape (k,).
        smallest: the algebraically smallest eigenvalue.
        bound: the largest residual that was asked for.
        converged: whether the residuals of all of these are within it.
        complete: every eigenvalue, ascending, where the whole space was spanned; else None.
    """

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    smallest: float
    bound: float
    converged: bool
    complete: Tensor | None


def top_eigenpairs(
    matrix: SymmetricMatrix,
    count: int,
    *,
    seed: int,
    tolerance: float = 1e-8,
    max_products: int = 1000,
) -> Eigenpairs:
    """Return the algebraically largest eigenpairs, and the smallest eigenvalue.

    Thick-restart Lanczos: the projection T = VᵀHV on a basis of some 2k vectors, restarted from
    the wanted Ritz vectors until ‖Hv − λv‖ ≤ tolerance · max|λ| for the k largest and the
    smallest. Every vector is orthogonalised against all others, twice. Where the space closes
    early the method goes on with a random vector, so that an eigenvalue of some multiplicity can
    be found that often.

    Args:
        matrix: H.
        count: k; fewer are returned where the matrix is smaller.
        seed: of the random vectors.
        tolerance: of the residuals.
        max_products: products with H after which the best so far is returned.

    Reference:
        Wu and Simon (2000), "Thick-restart Lanczos method for large symmetric eigenvalue
        problems".
    """
    count = min(count, matrix.size)
    state = _State(matrix, min(matrix.size, max(2 * count + 12, 24)), seed)
    state.limit = max(max_products, count)
    while True:
        state.expand(count, tolerance)
        if state.settled(count, tolerance) or state.products >= state.limit:
            return state.pairs(count, tolerance)
        state.restart(count + 4)


class _State:
    """A basis, the projection on it, and what is left of the last product."""

    def __init__(self, matrix: SymmetricMatrix, capacity: int, seed: int) -> None:
        self._matrix = matrix
        self._capacity = capacity
        self._basis = Basis(matrix, capacity)
        self._projection = torch.zeros(capacity, capacity, dtype=torch.float64)
        self._generator = torch.Generator().manual_seed(seed)
        self._rest = matrix.drawn(self._generator)
        self._scale = 0.0
        self.products = 0
        self.limit = 0

    def expand(self, count: int, tolerance: float) -> None:
        """Fill the basis, or stop as soon as what is wanted has converged.

        A space that has closed may have left out how often an eigenvalue is there, and one that
        is as large as the matrix tells them all: these are filled.
        """
        fill = self._capacity == self._matrix.size
        while self._basis.count < self._capacity:
            vector = self._basis.append(self._next())
            self._rest, shares = self._basis.split(self._matrix.product(vector))
            self.products += 1
            index = self._basis.count - 1
            self._projection[index, : index + 1] = shares.cpu()
            self._projection[: index + 1, index] = shares.cpu()
            self._scale = max(self._scale, float(shares.abs().max()), self._left())
            fill = fill or self._left() <= BREAKDOWN * self._scale
            settled = not fill and self.settled(count, tolerance)
            if settled or self.products >= self.limit:
                return

    def _left(self) -> float:
        return float(torch.linalg.vector_norm(self._rest))

    def _next(self) -> Tensor:
        """Return the direction to go on in, at random where nothing is left of the product."""
        if self._left() <= BREAKDOWN * self._scale:
            self._rest = self._matrix.drawn(self._generator)
        rest, _ = self._basis.split(self._rest / self._left())
        return rest

    def _ritz(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return Ritz values, ascending, their vectors in the basis, and their residuals."""
        size = self._basis.count
        values, weights = torch.linalg.eigh(self._projection[:size, :size])
        left = 0.0 if size == self._matrix.size else self._left()
        return values, weights, left * weights[-1].abs()

    def settled(self, count: int, tolerance: float) -> bool:
        """Whether the largest Ritz pairs and the smallest are within the tolerance."""
        values, _, residuals = self._ritz()
        bound = tolerance * float(values.abs().max())
        present = len(values) > count or len(values) == self._matrix.size
        return present and bool((residuals[-count:] <= bound).all() and residuals[0] <= bound)

    def pairs(self, count: int, tolerance: float) -> Eigenpairs:
        """Return the Ritz pairs that are wanted."""
        values, weights, residuals = self._ritz()
        wanted = torch.arange(len(values) - 1, len(values) - 1 - count, -1)
        return Eigenpairs(
            values=values[wanted],
            vectors=self._basis.combined(weights[:, wanted]),
            residuals=residuals[wanted],
            smallest=float(values[0]),
            bound=tolerance * float(values.abs().max()),
            converged=self.settled(count, tolerance),
            complete=values if self._basis.count == self._matrix.size else None,
        )

    def restart(self, keep: int) -> None:
        """Go on with the largest Ritz vectors and the two smallest."""
        values, weights, _ = self._ritz()
        kept = torch.cat([torch.arange(2), torch.arange(len(values) - keep, len(values))])
        self._basis.replace(self._basis.combined(weights[:, kept]))
        self._projection.zero_()
        self._projection[: len(kept), : len(kept)] = torch.diag(values[kept])


@dataclass(frozen=True)
class Quadrature:
    """Gauss quadrature of the spectrum that a unit vector sees: vᵀf(H)v ≈ Σ wᵢ f(λᵢ).

    Exact for polynomials of a degree below twice the number of nodes.

    Attributes:
        nodes: λᵢ, ascending, shape (steps,).
        weights: wᵢ, which sum to 1, shape (steps,).
    """

    nodes: Tensor
    weights: Tensor


def quadrature(matrix: SymmetricMatrix, start: Tensor, steps: int) -> Quadrature:
    """Return the quadrature of `steps` nodes, fewer where the space of the vector closes.

    Args:
        matrix: H.
        start: v, of unit length, float64, shape (n,).
        steps: products to take.

    Reference:
        Golub and Meurant (1994), "Matrices, moments and quadrature".
    """
    steps = min(steps, matrix.size)
    basis = Basis(matrix, steps)
    diagonal: list[float] = []
    beside: list[float] = []
    rest = start
    while len(diagonal) < steps:
        vector = basis.append(rest)
        rest, shares = basis.split(matrix.product(vector))
        diagonal.append(float(shares[-1]))
        beside.append(float(torch.linalg.vector_norm(rest)))
        if beside[-1] <= BREAKDOWN * max(map(abs, (*diagonal, *beside))):
            break
    projection = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    edge = torch.tensor(beside[: len(diagonal) - 1], dtype=torch.float64)
    projection += torch.diag(edge, 1) + torch.diag(edge, -1)
    nodes, vectors = torch.linalg.eigh(projection)
    return Quadrature(nodes, vectors[0].square())
