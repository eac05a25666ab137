"""The directions of one checkpoint, by label; one of them in memory at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from landscape_cli import checkpoints, directions
from landscape_cli.errors import MeasurementError
from landscape_cli.site import Site
from landscape_cli.specs import DirectionSpec


class Headings:
    """Makes directions at a site, and keeps the last one.

    Args:
        site: where to step from.
        following: the next checkpoint of the trajectory, for ``update``.
        changed: is called before a direction is let go, so that nobody else holds it.
    """

    def __init__(self, site: Site, *, following: Path | None, changed: Callable[[], None]) -> None:
        self._site = site
        self._following = following
        self._changed = changed
        self._kept: tuple[str, list[Tensor] | None] | None = None

    def direction(self, label: str) -> list[Tensor] | None:
        """Return d for a label, scaled as its kind is; None where there is nothing to go to.

        The direction ``gradient`` is g itself, not a copy.
        """
        if DirectionSpec.of_label(label).kind == "gradient":
            return self._site.gradient
        if self._kept is None or self._kept[0] != label:
            self._kept = None
            self._changed()
            self._kept = (label, self.make(label))
        return self._kept[1]

    def make(self, label: str) -> list[Tensor] | None:
        """Return d for a label as a new direction, which is not kept here."""
        spec = DirectionSpec.of_label(label)
        if spec.kind == "gradient":
            return self._site.gradient
        found = self._raw(spec, label)
        if found is None or not spec.scaled:
            return found
        return directions.scaled_to(found, self._site.gradient_norm)

    def _raw(self, spec: DirectionSpec, label: str) -> list[Tensor] | None:
        parameters, seed = self._site.parameters, self._site.seed
        if spec.kind == "random":
            return directions.random(parameters, seed, int(spec.argument))
        if spec.kind == "random-filter":
            return directions.random_filter(parameters, seed, int(spec.argument))
        if spec.kind == "file":
            return directions.from_file(parameters, Path(spec.argument))
        if spec.kind == "toward":
            return directions.towards(parameters, self.weights(Path(spec.argument)))
        if spec.kind == "update":
            if self._following is None:
                return None
            return directions.towards(parameters, self.weights(self._following))
        raise MeasurementError("no such direction", seen=label, hint="see landscape probe --help")

    def weights(self, path: Path) -> list[Tensor]:
        """Return another checkpoint's values of θ."""
        model, names = self._site.objective.model, self._site.parameters.names
        state = checkpoints.match(checkpoints.read(path).tensors, model).state
        named = dict(model.named_parameters())
        return [state[name].to(named[name].dtype) for name in names]
