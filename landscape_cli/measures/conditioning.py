"""How well conditioned each unit's Hessian is, as it is and behind the BN preconditioner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from landscape_cli.design import (
    MATRIX_ELEMENTS,
    design_matrix,
    group_of,
    matrix_elements,
    unit_count,
    weight_count,
)
from landscape_cli.errors import SpecError
from landscape_cli.features import Compression, Features, spectral_condition
from landscape_cli.layers import affine_layers, listening_to_inputs
from landscape_cli.measures.contract import Arrays, Field
from landscape_cli.objective import Objective
from landscape_cli.precision import in_float64
from landscape_cli.site import Site
from landscape_cli.unit_hessians import OutputCurvature

DIMS = ("checkpoint", "unit")
WIDE = 1024
"""Weights a unit above which only a layer's first unit is measured."""
CORE_ELEMENTS = 1 << 24
"""Numbers in the matrices of the units that are measured together, 128 MiB."""


class Conditioning:
    """Condition numbers of the Hessian in the (bias, weights) of single units.

    - ``hessian``         κ of ∂²L/∂ŵ∂ŵ = ĤᵀSĤ, ŵ = (bias, weights) of the unit
    - ``preconditioned``  κ of PᵀĤᵀSĤP = ĜᵀSĜ with P = UD: features centred, then scaled by 1/σ
    - ``scaling``         κ(D), D = diag(1, 1/σ)
    - ``extended``, ``centred``, ``normalised``  κ(Ĥ), κ(ĤU), κ(Ĝ); NaN unless Ĥ has full rank

    Ĥ = [e, H] has a row per example (and output position of a convolution: the entries under
    the kernel, padding included) over all batches; μ and the biased σ are those of its columns.
    S = ∂²L/∂a∂a is that of the network as it is: where batch statistics couple the examples it
    is not diagonal. Features with σ = 0 are left out and counted, a missing bias is 0. κ of a
    Hessian is max|λ| ÷ min|λ| over |λ| > n·ε·max|λ|. Everything in float64, whatever the run's
    type.

    All units of layers of up to 1,024 weights a unit, otherwise the first. One product with the
    Hessian by the layer's outputs per unit and output position; where batch statistics couple
    the examples, one per unit and weight: give `layers` and `units` then.

    Args:
        layers: shell pattern on the names of layers.
        units: units a layer, from the first; 0 for all.

    Raises:
        SpecError: If `units` is negative or `layers` is not text.

    Reference:
        Lange, Helfrich and Ye (2022), §3.3, §4, Propositions 2 and 9, Theorems 3 and 4, Fig. 8.
    """

    name: ClassVar[str] = "conditioning"
    fields: ClassVar[Mapping[str, Field]] = {
        "unit": Field(("unit",), "", "layer and unit, layer:unit", "str"),
        "hessian": Field(DIMS, "", "κ of the Hessian in (bias, weights), nonzero spectrum"),
        "preconditioned": Field(DIMS, "", "κ of the Hessian behind the BN preconditioner"),
        "scaling": Field(DIMS, "", "κ(D), spread of the features' standard deviations"),
        "extended": Field(DIMS, "", "κ of the extended inputs, NaN without full column rank"),
        "centred": Field(DIMS, "", "κ of the centred inputs"),
        "normalised": Field(DIMS, "", "κ of the normalised inputs"),
        "nonzero": Field(DIMS, "", "eigenvalues of the Hessian that are not zero", "int64"),
        "constant_features": Field(DIMS, "", "features with σ = 0, left out", "int64"),
    }

    def __init__(self, layers: str = "*", units: int = 0) -> None:
        if not isinstance(units, int) or units < 0:
            raise SpecError(
                "the number of units is not a whole number from 0", seen=units, hint="units=4"
            )
        if not isinstance(layers, str):
            raise SpecError("layers is not a pattern", seen=layers, hint="layers=features.*")
        self.layers = layers
        self.units = units

    def refusal(self, site: Site) -> str:
        """Refuse a model without such layers."""
        if not self._named(site.objective.model):
            return f"the model has no dense or convolutional layer named {self.layers!r}"
        return ""

    def measure(self, site: Site) -> Arrays:
        """Return every field, shape (unit,) each; what was left out is among the notices.

        Nothing is returned where every layer is left out.
        """
        rows: dict[str, tuple[float, ...]] = {}
        with in_float64(site.objective) as objective:
            for name, module in self._named(objective.model).items():
                layer = self._planned(objective, name, module)
                site.notices.extend(f"{self.name}: {text}" for text in layer.notices)
                for unit, numbers in layer.measured():
                    rows[f"{name}:{unit}"] = numbers
        if not rows:
            return {}
        names = [field for field in self.fields if field != "unit"]
        columns = zip(names, np.array(list(rows.values()), dtype=np.float64).T, strict=True)
        found = {name: column.astype(self.fields[name].dtype) for name, column in columns}
        return {"unit": np.array(list(rows), dtype=str), **found}

    def _named(self, model: nn.Module) -> dict[str, nn.Module]:
        layers = affine_layers(model, transposed=False)
        return {name: m for name, m in layers.items() if fnmatchcase(name, self.layers)}

    def _planned(self, objective: Objective, name: str, module: nn.Module) -> _Layer:
        inputs = _inputs(objective, module)
        count, weights = unit_count(module), weight_count(module)
        wanted = 1 if weights > WIDE else min(self.units or count, count)
        layer = _Layer(objective, module, inputs, tuple(range(wanted)), [])
        problem = layer.problem()
        if problem:
            return _Layer(objective, module, [], (), [f"{name} is left out: {problem}"])
        if wanted < count:
            text = f"{name} has {weights} weights a unit: units {wanted} to {count - 1} left out"
            layer.notices.append(text)
        return layer


def _inputs(objective: Objective, module: nn.Module) -> list[list[Tensor]]:
    """Return what a layer is given, per batch and use."""
    found = []
    for index in range(len(objective.batches)):
        with torch.no_grad(), objective.still(index), listening_to_inputs([module]) as (uses,):
            objective.total_at(index, objective.parameters.tensors)
        found.append(uses)
    return found


@dataclass
class _Layer:
    """The units of one layer that are to be measured."""

    objective: Objective
    module: nn.Module
    inputs: list[list[Tensor]]
    units: tuple[int, ...]
    notices: list[str]
    kept: tuple[int, OutputCurvature] | None = None

    def problem(self) -> str:
        """Return why the layer cannot be measured; empty if it can."""
        uses = {len(batch) for batch in self.inputs}
        if uses != {1}:
            return f"a forward pass uses it {max(uses)} times"
        size = sum(matrix_elements(self.module, batch[0]) for batch in self.inputs)
        return f"its inputs make a matrix of {size:,} numbers" if size > MATRIX_ELEMENTS else ""

    def measured(self) -> Iterator[tuple[int, tuple[float, ...]]]:
        """Yield the numbers of every unit, in the order of the fields."""
        groups: dict[int, list[int]] = {}
        for unit in self.units:
            groups.setdefault(group_of(self.module, unit), []).append(unit)
        for group, units in groups.items():
            yield from self._group(group, units)

    def _group(self, group: int, units: list[int]) -> Iterator[tuple[int, tuple[float, ...]]]:
        """Yield the numbers of the units that look at the same inputs."""
        matrices = [design_matrix(self.module, batch[0], group) for batch in self.inputs]
        features = Features.of(torch.cat([matrix.flatten(0, 1) for matrix in matrices]))
        compression = Compression(features)
        shared = (features.scaling(), *features.matrix_conditions())
        size = min(features.extended.shape)
        step = max(1, CORE_ELEMENTS // size**2)
        for start in range(0, len(units), step):
            chunk = units[start : start + step]
            plain, normalised = compression.spectra(self._cores(chunk, compression))
            for unit, before, after in zip(chunk, plain.cpu(), normalised.cpu(), strict=True):
                hessian, nonzero = spectral_condition(before, features.size)
                preconditioned, _ = spectral_condition(after, features.size)
                yield (
                    unit,
                    (hessian, preconditioned, *shared, nonzero, features.left_out),
                )

    def _curvature(self, index: int) -> OutputCurvature:
        """Return S of a batch; the last one is kept, for several chunks of one batch."""
        if self.kept is None or self.kept[0] != index:
            self.kept = None
            self.kept = (index, OutputCurvature(self.objective, index, self.module))
        return self.kept[1]

    def _cores(self, units: list[int], compression: Compression) -> Tensor:
        """Return B = QᵀSQ of every unit, summed over the batches; S itself where Q is none."""
        parts = []
        start = 0
        for index in range(len(self.inputs)):
            curvature = self._curvature(index)
            stop = start + curvature.rows
            rows = None if compression.basis is None else compression.basis[start:stop]
            parts.append(_core(curvature, units, rows))
            start = stop
        if compression.basis is not None:
            return torch.stack(parts).sum(0)
        return torch.stack([_diagonal(own) for own in zip(*parts, strict=True)])


def _diagonal(blocks: Iterable[Tensor]) -> Tensor:
    """Return the matrix with these blocks on its diagonal."""
    matrix: Tensor = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]
    return matrix


def _core(curvature: OutputCurvature, units: list[int], basis: Tensor | None) -> Tensor:
    """Return QᵀSQ of one batch, S without a basis; shape (units, r, r)."""
    width = curvature.rows if basis is None else basis.shape[1]
    apart = curvature.positions <= width and not curvature.interacts
    columns = curvature.positions if apart else width
    step = max(1, CORE_ELEMENTS // (curvature.rows * columns))
    parts = [units[start : start + step] for start in range(0, len(units), step)]
    reduce = _core_apart if apart else _core_together
    return torch.cat([reduce(curvature, part, basis) for part in parts])


def _core_apart(curvature: OutputCurvature, units: list[int], basis: Tensor | None) -> Tensor:
    """Return QᵀSQ where the examples do not interact, from the blocks of S."""
    blocks = curvature.blocks(units)
    if basis is None:
        return torch.stack([_diagonal(own) for own in blocks])
    cut = basis.reshape(curvature.examples, curvature.positions, -1)
    return torch.stack([torch.einsum("npi,npj->ij", cut, own @ cut) for own in blocks])


def _core_together(curvature: OutputCurvature, units: list[int], basis: Tensor | None) -> Tensor:
    """Return QᵀSQ from the columns of SQ."""
    if basis is None:
        return curvature.products(units, curvature.identity())
    return basis.T @ curvature.products(units, basis)
