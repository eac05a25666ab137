"""The directions of one checkpoint, by label; one of them in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from landscape_cli import checkpoints, directions
from landscape_cli.engine.memory import available_bytes
from landscape_cli.engine.plane import check_memory, principal_components, project
from landscape_cli.engine.regenerated import Regenerated
from landscape_cli.errors import MeasurementError
from landscape_cli.parameters import Tensors
from landscape_cli.planes import COMPONENTS
from landscape_cli.site import Site
from landscape_cli.specs import DirectionSpec

DRAWN = ("random", "random-filter")
KEPT_COPIES = 3
"""Copies of θ that must fit into the free memory before a random direction is kept in it.

The direction is one; the limit, or the gradient of several batches, another; and the third is for
what the forward pass keeps.
"""


class Headings:
    """Makes directions at a site, and keeps the last one.

    Args:
        site: where to step from.
        trajectory: the checkpoints of the run; empty paths where there is none on disk.
        position: which of them the site is at.
        changed: is called before a direction is let go, so that nobody else holds it.
    """

    def __init__(
        self,
        site: Site,
        *,
        trajectory: Sequence[Path],
        position: int,
        changed: Callable[[], None],
    ) -> None:
        self._site = site
        self._trajectory = tuple(trajectory)
        self._path = self._trajectory[position]
        self._following = next(iter(self._trajectory[position + 1 :]), None)
        self._changed = changed
        self._axes: tuple[tuple[str, str], tuple[Tensors, Tensors]] | None = None
        self._kept: tuple[str, Tensors | None] | None = None

    def direction(self, label: str) -> Tensors | None:
        """Return d for a label, scaled as its kind is; None where there is nothing to go to.

        The direction ``gradient`` is g itself, not a copy.
        """
        if DirectionSpec.of_label(label).kind == "gradient":
            return self._site.gradient
        if self._kept is None or self._kept[0] != label:
            self._kept = self._axes = None
            self._changed()
            self._kept = (label, self.make(label))
        return self._kept[1]

    def axes(self, labels: tuple[str, str]) -> tuple[Tensors, Tensors]:
        """Return d₁ and d₂ of a plane, kept until another plane or direction is asked for.

        Raises:
            MeasurementError: If there is nothing to go to along one of them.
        """
        if self._axes is None or self._axes[0] != labels:
            self._kept = self._axes = None
            self._changed()
            self._axes = (labels, self._make_axes(labels))
        return self._axes[1]

    def _make_axes(self, labels: tuple[str, str]) -> tuple[Tensors, Tensors]:
        if labels == COMPONENTS:
            first, second = principal_components(self._displacements())
            return first, second
        found = [self.make(label) for label in labels]
        if found[0] is None or found[1] is None:
            raise MeasurementError(
                "a plane has no second checkpoint to go to",
                seen=f"{self._site.label}, {','.join(labels)}",
                hint="update needs a checkpoint that follows",
            )
        return found[0], found[1]

    def _displacements(self) -> list[list[Tensor]]:
        """Return θᵢ − θ₀ of the other checkpoints of the trajectory."""
        others = [path for path in self._trajectory if path != self._path]
        check_memory(self._site.parameters.origin, len(others) + 2)
        return [self.displacement(path) for path in others]

    def displacement(self, path: Path) -> list[Tensor]:
        """Return θ − θ₀ of another checkpoint."""
        towards = directions.towards(self._site.parameters, self.weights(path))
        torch._foreach_neg_(towards)
        return towards

    def trajectory(self, labels: tuple[str, str]) -> Tensor:
        """Return where the checkpoints lie on a plane; float64, shape (checkpoint, 2)."""
        axes = self.axes(labels)
        rows = [
            torch.zeros(1, 2, dtype=torch.float64)
            if path == self._path
            else project([self.displacement(path)], axes).cpu()
            for path in self._trajectory
        ]
        return torch.cat(rows)

    def make(self, label: str) -> Tensors | None:
        """Return d for a label as a new direction, which is not kept here."""
        spec = DirectionSpec.of_label(label)
        if spec.kind == "gradient":
            return self._site.gradient
        found = self._raw(spec, label)
        if found is None or not spec.scaled or isinstance(found, Regenerated):
            return found
        return directions.rescaled(found, self._site.gradient_norm)

    def _raw(self, spec: DirectionSpec, label: str) -> list[Tensor] | Regenerated | None:
        parameters, seed = self._site.parameters, self._site.seed
        if spec.kind in DRAWN and self._short_of_memory():
            return self._regenerated(spec)
        if spec.kind == "random":
            return directions.random(parameters, seed, int(spec.argument))
        if spec.kind == "random-filter":
            return directions.random_filter(parameters, seed, int(spec.argument))
        if spec.kind == "eigenvector":
            return directions.eigenvector(self._site.objective, int(spec.argument), seed)
        if spec.kind == "file":
            return directions.from_file(parameters, Path(spec.argument))
        if spec.kind == "toward":
            return directions.towards(parameters, self.weights(Path(spec.argument)))
        if spec.kind == "update":
            if self._following is None:
                return None
            return directions.towards(parameters, self.weights(self._following))
        raise MeasurementError("no such direction", seen=label, hint="see landscape probe --help")

    def _short_of_memory(self) -> bool:
        origin = self._site.parameters.origin
        theta = sum(tensor.numel() * tensor.element_size() for tensor in origin)
        return available_bytes(origin[0].device) < KEPT_COPIES * theta

    def _regenerated(self, spec: DirectionSpec) -> Regenerated:
        make = Regenerated.random if spec.kind == "random" else Regenerated.random_filter
        length = self._site.gradient_norm
        return make(self._site.parameters, self._site.seed, int(spec.argument), length)

    def weights(self, path: Path) -> list[Tensor]:
        """Return another checkpoint's values of θ."""
        model, names = self._site.objective.model, self._site.parameters.names
        state = checkpoints.match(checkpoints.read(path).tensors, model).state
        named = dict(model.named_parameters())
        return [state[name].to(named[name].dtype) for name in names]
