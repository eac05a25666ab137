"""The distributions of what goes into each layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from landscape_cli import randomness
from landscape_cli.errors import SpecError
from landscape_cli.layers import ROOT, affine_layers
from landscape_cli.measures.contract import Arrays, Field
from landscape_cli.norm_layers import uses_batch
from landscape_cli.site import Site

REACH = 1e4
"""The histogram goes from −REACH to REACH; what lies beyond is counted."""
LINEAR = 1e-2
"""Where bins turn from equally wide to wide in proportion to their distance from zero."""
DIMS = ("checkpoint", "layer")
UNIT = ("checkpoint", "layer", "unit")


def bin_edges(bins: int) -> np.ndarray:
    """Return the edges of the histograms, the same for every layer, checkpoint and run.

    Equally spaced in asinh(x / 0.01) from −10⁴ to 10⁴: of equal width around zero, in proportion
    to |x| further out, so that nothing has to be known of the activations beforehand and the
    histograms of a trajectory, or of two runs, can be held against each other bin by bin.

    Example:
        >>> bin_edges(4).round(2).tolist()
        [-10000.0, -7.07, 0.0, 7.07, 10000.0]
    """
    end = math.asinh(REACH / LINEAR)
    edges = LINEAR * np.sinh(np.linspace(-end, end, bins + 1))
    return np.asarray((edges - edges[::-1]) / 2)  # symmetric to the last bit


class Activations:
    """Mean, variance and histogram of every layer's input, and of a few units of it.

    A layer is a module with parameters of its own, or that normalises over the batch, whose
    first input is a floating tensor; layers come in the order of their first use. Taken over
    all examples of all batches, positions and uses; the biased variance. The units (features of
    a dense layer's input, else channels) are chosen with the seed and are the same at every
    checkpoint; a layer with fewer has −1 and NaN. Evaluated in the run's type, summed and binned
    in float64.

    Args:
        bins: of the histograms.
        units: units of each layer to follow.

    Raises:
        SpecError: If one of them is not a whole number, from 1 and from 0.

    Reference:
        Santurkar et al. (2018), Fig. 1c, 2, 7, 8 and 14.
    """

    name: ClassVar[str] = "activations"
    fields: ClassVar[Mapping[str, Field]] = {
        "layer": Field(("layer",), "", "layers in the order of their first use", "str"),
        "unit": Field(("unit",), "", "units of a layer that are followed, counted", "int64"),
        "bin": Field(("bin",), "activation", "middle of the bin"),
        "edge": Field(("edge",), "activation", "edges of the bins"),
        "mean": Field(DIMS, "activation", "mean of the layer's input"),
        "variance": Field(DIMS, "squared activation", "biased variance of the layer's input"),
        "minimum": Field(DIMS, "activation", "smallest input"),
        "maximum": Field(DIMS, "activation", "largest input"),
        "histogram": Field((*DIMS, "bin"), "", "inputs in each bin", "int64"),
        "outside": Field(DIMS, "", "finite inputs beyond the bins", "int64"),
        "not_finite": Field(DIMS, "", "inputs that are not finite", "int64"),
        "unit_index": Field(UNIT, "", "which unit, −1 for none", "int64"),
        "unit_mean": Field(UNIT, "activation", "mean of one unit"),
        "unit_variance": Field(UNIT, "squared activation", "biased variance of one unit"),
        "unit_histogram": Field((*UNIT, "bin"), "", "inputs of one unit in each bin", "int64"),
    }

    def __init__(self, bins: int = 256, units: int = 4) -> None:
        for name, value, least in (("bins", bins, 1), ("units", units, 0)):
            if not isinstance(value, int) or value < least:
                raise SpecError(
                    f"{name} is not a whole number from {least}", seen=value, hint=f"{name}=4"
                )
        self.bins = bins
        self.units = units

    def refusal(self, site: Site) -> str:
        """Refuse a model without layers."""
        if not _layers(site.objective.model):
            return "the model has no layer with an input of its own"
        return ""

    def measure(self, site: Site) -> Arrays:
        """Return every field."""
        edges = bin_edges(self.bins)
        tallies = self._tallied(site, torch.from_numpy(edges).to(site.parameters.device))
        rows = [_row(index, tally) for index, tally in tallies.values()]
        return {
            "layer": np.array(list(tallies), dtype=str),
            "unit": np.arange(self.units),
            "bin": (edges[:-1] + edges[1:]) / 2,
            "edge": edges,
            **{name: np.stack([row[name] for row in rows]) for name in rows[0]},
        }

    def _tallied(self, site: Site, edges: Tensor) -> dict[str, tuple[Tensor, Tally]]:
        """Return the units of every layer that is used, and the tally of all inputs and theirs."""
        found: dict[str, tuple[Tensor, Tally]] = {}

        def note(name: str, module: nn.Module, value: Tensor) -> None:
            features = _features_first(module, value.detach())
            if name not in found:
                chosen = self._chosen(site.seed, name, len(features))
                found[name] = (chosen, Tally(1 + self.units, edges))
            index, tally = found[name]
            tally.add(0, features.reshape(-1))
            for row, unit in enumerate(index.tolist()):
                if unit >= 0:
                    tally.add(1 + row, features[unit])

        objective = site.objective
        for batch in range(len(objective.batches)):
            with torch.no_grad(), objective.still(batch), _listening(objective.model, note):
                objective.total_at(batch, objective.parameters.tensors)
        return found

    def _chosen(self, seed: int, layer: str, count: int) -> Tensor:
        """Return which units of a layer are followed, ascending, then −1."""
        generator = torch.Generator().manual_seed(randomness.derived_seed(seed, "units", layer))
        chosen = torch.full((self.units,), -1)
        drawn = torch.randperm(count, generator=generator)[: self.units].sort().values
        chosen[: len(drawn)] = drawn
        return chosen


def _row(index: Tensor, tally: Tally) -> dict[str, np.ndarray]:
    """Return the fields of one layer."""
    variance = tally.variance()
    histogram = tally.histogram.cpu().numpy()
    return {
        "mean": tally.mean[0],
        "variance": variance[0],
        "minimum": tally.minimum[0],
        "maximum": tally.maximum[0],
        "histogram": histogram[0],
        "outside": tally.outside[0],
        "not_finite": tally.not_finite[0],
        "unit_index": index.numpy(),
        "unit_mean": np.where(tally.count[1:] > 0, tally.mean[1:], np.nan),
        "unit_variance": variance[1:],
        "unit_histogram": histogram[1:],
    }


class Tally:
    """Moments and histograms of several rows of numbers, which come in parts."""

    def __init__(self, rows: int, edges: Tensor) -> None:
        self._edges = edges
        self.count = np.zeros(rows, dtype=np.int64)
        self.mean = np.zeros(rows)
        self._squares = np.zeros(rows)
        self.minimum = np.full(rows, np.inf)
        self.maximum = np.full(rows, -np.inf)
        shape = (rows, len(edges) - 1)
        self.histogram = torch.zeros(shape, dtype=torch.int64, device=edges.device)
        self.outside = np.zeros(rows, dtype=np.int64)
        self.not_finite = np.zeros(rows, dtype=np.int64)

    def variance(self) -> np.ndarray:
        """Return the biased variance of every row, NaN where nothing came."""
        with np.errstate(invalid="ignore"):
            return self._squares / self.count

    def add(self, row: int, values: Tensor) -> None:
        """Take more numbers of one row; sums are joined as Chan, Golub and LeVeque (1983) do."""
        wide = values.double()
        if not len(wide):
            return
        variance, mean = (float(x) for x in torch.var_mean(wide, correction=0))
        before, new = int(self.count[row]), len(wide)
        delta = mean - self.mean[row]
        self.count[row] += new
        self.mean[row] += delta * new / (before + new)
        self._squares[row] += variance * new + delta * delta * before * new / (before + new)
        low, high = torch.aminmax(wide)
        self.minimum[row] = np.minimum(self.minimum[row], float(low))
        self.maximum[row] = np.maximum(self.maximum[row], float(high))
        self._bin(row, wide)

    def _bin(self, row: int, wide: Tensor) -> None:
        finite = wide[torch.isfinite(wide)]
        places = torch.bucketize(finite, self._edges, right=True) - 1
        inside = places[(places >= 0) & (places < self.histogram.shape[1])]
        self.histogram[row] += torch.bincount(inside, minlength=self.histogram.shape[1])
        self.outside[row] += len(finite) - len(inside)
        self.not_finite[row] += len(wide) - len(finite)


Note = Callable[[str, nn.Module, Tensor], None]


@contextmanager
def _listening(model: nn.Module, note: Note) -> Iterator[None]:
    """Have `note` told of the first input of every layer, each time it is used."""

    def listener(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            first = args[0] if args else next(iter(kwargs.values()), None)
            if isinstance(first, Tensor) and first.is_floating_point() and first.dim():
                note(name, module, first)

        return hook

    handles = [
        module.register_forward_pre_hook(listener(name), with_kwargs=True)
        for name, module in _layers(model).items()
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules with parameters of their own, or that normalise over the batch."""
    affine = set(affine_layers(model).values())
    return {
        name or ROOT: module
        for name, module in model.named_modules()
        if (module in affine or uses_batch(module) or _owns_parameters(module))
        and ".parametrizations." not in f".{name}."
    }


def _owns_parameters(module: nn.Module) -> bool:
    return next(module.parameters(recurse=False), None) is not None


def _features_first(module: nn.Module, value: Tensor) -> Tensor:
    """Return an input as (features, …): the last axis of dense layers and layer norms, else 1."""
    last = isinstance(module, nn.Linear) or hasattr(module, "normalized_shape") or value.dim() < 3
    return value.movedim(-1 if last else 1, 0).flatten(1)
