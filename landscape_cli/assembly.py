"""Finished units of work, put together into a run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from landscape_cli.measures import effective_smoothness, gradient_predictiveness, loss_range
from landscape_cli.measures.contract import Field
from landscape_cli.plan import Plan
from landscape_cli.planes import PlaneSpec
from landscape_cli.points import POINT_FIELDS, point_arrays
from landscape_cli.runs import FORMAT, FORMAT_VERSION, MEASURED, NOT_MEASURED, Run, Variable
from landscape_cli.units import UnitKey, UnitResult

POINTS = ("checkpoint", "direction", "step")
BASICS = {
    loss_range.NAME: loss_range.FIELDS,
    gradient_predictiveness.NAME: gradient_predictiveness.FIELDS,
    effective_smoothness.NAME: effective_smoothness.FIELDS,
}
MEANINGS = {
    "loss": ("loss", "L(θ(a)), θ(a) = θ₀ − a·d"),
    "gradient_change": ("loss per distance", "ℓ2 norm of ∇L(θ(a)) − ∇L(θ₀)"),
    "gradient_cosine": ("", "cosine of the angle between ∇L(θ(a)) and ∇L(θ₀)"),
    "distance": ("distance", "ℓ2 norm of θ(a) − θ₀ as it was moved"),
    "smoothness": ("loss per squared distance", "gradient change over distance"),
    "status": ("", "0 not measured, 1 measured, 2 loss not finite, 3 gradient not finite"),
}
BASE_FIELDS = {
    "base_loss": ("loss", "L(θ₀)"),
    "gradient_norm": ("loss per distance", "ℓ2 norm of ∇L(θ₀)"),
    "noise_floor": ("loss per distance", "gradient change when nothing but rounding changes"),
}


def assemble(header: Mapping[str, Any], units: Iterable[UnitResult]) -> Run:
    """Return the run that a plan and its finished units make; what is missing has status 0.

    Args:
        header: `Plan.to_header`.
        units: in any order; of two with the same key the later counts.
    """
    return _Assembly(Plan.from_header(header), units).run()


class _Assembly:
    """The arrays of a run while they are being filled."""

    def __init__(self, plan: Plan, units: Iterable[UnitResult]) -> None:
        self.units: dict[UnitKey, UnitResult] = {unit.key: unit for unit in units}
        self.asked = plan.step_multiples
        self.plan = plan = replace(plan, step_multiples=self._step_axis(plan))
        self.shape = (len(plan.checkpoints), len(plan.directions), len(plan.step_multiples))
        self.variables: dict[str, Variable] = {}
        self.arrays: dict[str, np.ndarray] = {}

    def run(self) -> Run:
        """Fill everything in and return the run."""
        self._add_axes()
        self._add_base()
        self._add_points()
        self._add_basics()
        if self.plan.plane is not None:
            self._add_plane(self.plan.plane)
        for name, fields in self.plan.measures.items():
            self._add_measure(name, fields)
        return Run(self.variables, self._attributes())

    def _step_axis(self, plan: Plan) -> tuple[float, ...]:
        """Return the grid, or the union of the grids of refined lines."""
        if plan.step_tolerance is None:
            return plan.step_multiples
        lines = [
            unit.arrays["multiples"] for unit in self.units.values() if "multiples" in unit.arrays
        ]
        return tuple(np.unique(np.concatenate([plan.step_multiples, *lines])).tolist())

    def _columns_of(self, unit: UnitResult) -> Any:
        """Return where along the step axis a line's points are."""
        if "multiples" not in unit.arrays:
            return slice(unit.key.start, unit.key.stop)
        return np.searchsorted(self.plan.step_multiples, unit.arrays["multiples"])

    def _add(self, path: str, dims: tuple[str, ...], values: Any, about: tuple[str, str]) -> None:
        self.variables[path] = Variable(dims, np.asarray(values), *about)

    def _add_axes(self) -> None:
        plan, along = self.plan, self.plan.checkpoints
        labels = np.array([c.label for c in along], dtype=object)
        steps = np.array([c.training_step for c in along], dtype=np.int64)
        rates = [np.nan if c.learning_rate is None else c.learning_rate for c in along]
        hashes = np.array([c.sha256 for c in along], dtype=object)
        self._add("checkpoint", ("checkpoint",), labels, ("", "checkpoint"))
        self._add("training_step", ("checkpoint",), steps, ("steps", "training step, −1 unknown"))
        self._add("learning_rate", ("checkpoint",), np.array(rates), ("", "training step size"))
        self._add("checkpoint_sha256", ("checkpoint",), hashes, ("", "sha256 of the checkpoint"))
        directions = np.array(plan.directions, dtype=object)
        self._add("direction", ("direction",), directions, ("", "direction"))
        count = len(plan.step_multiples)
        self._add("step", ("step",), np.arange(count, dtype=np.int64), ("", "index of the step"))
        multiples = np.array(plan.step_multiples, dtype=np.float64)
        self._add(
            "step_multiple",
            ("step",),
            multiples,
            ("learning rates", "step size over learning rate"),
        )
        # One grid serves all scaled directions; with none, a is the multiple itself.
        scaled = next((d for d in plan.directions if d not in plan.unscaled), plan.directions[0])
        sizes = np.stack([plan.step_sizes(i, scaled) for i in range(len(along))])
        self._add("step_size", ("checkpoint", "step"), sizes, ("", "step size a"))

    def _add_base(self) -> None:
        values = {name: np.full(self.shape[0], np.nan) for name in BASE_FIELDS}
        for index in range(self.shape[0]):
            unit = self.units.get(UnitKey(index, "base"))
            for name in BASE_FIELDS:
                if unit is not None and name in unit.arrays:
                    values[name][index] = float(unit.arrays[name])
        for name, about in BASE_FIELDS.items():
            self._add(name, ("checkpoint",), values[name], about)
        self.arrays.update(values)

    def _add_points(self) -> None:
        points = {name: np.full(self.shape, np.nan) for name in POINT_FIELDS}
        points["status"] = np.full(self.shape, NOT_MEASURED, dtype=np.uint8)
        self.arrays["limit"] = np.full(self.shape[:2], np.nan)
        requested = np.zeros(self.shape, dtype=np.uint8)
        positions = {label: index for index, label in enumerate(self.plan.directions)}
        for key, unit in self.units.items():
            if key.kind != "line" or "columns" not in unit.arrays:
                continue
            place = (key.checkpoint, positions[key.name])
            norm = self.arrays["gradient_norm"][key.checkpoint]
            for name, values in point_arrays(unit.arrays["columns"], norm).items():
                points[name][place][self._columns_of(unit)] = values
            if "added" in unit.arrays:
                requested[place][self._columns_of(unit)] = 1 + unit.arrays["added"]
            if "limit" in unit.arrays:
                self.arrays["limit"][place] = float(unit.arrays["limit"])
        for name, values in points.items():
            self._add(name, POINTS, values, MEANINGS[name])
        if self.plan.step_tolerance is not None:
            meaning = "1 where the grid asked for the point, 2 where refinement did, 0 elsewhere"
            self._add("step_requested", POINTS, requested, ("", meaning))
        floor = self.arrays["noise_floor"][:, None, None]
        below = (points["gradient_change"] <= floor).astype(np.uint8)
        meaning = "1 where the gradient change is not above the noise floor"
        self._add("below_noise_floor", POINTS, below, ("", meaning))
        self.arrays.update(points)

    def _add_basics(self) -> None:
        values = {
            f"{group}/{name}": np.full(self.shape[:2], np.nan if f.dtype == "float64" else 0)
            for group, fields in BASICS.items()
            for name, f in fields.items()
        }
        for place in np.ndindex(*self.shape[:2]):
            for path, value in self._basics_of(*place).items():
                values[path][place] = value
        for group, fields in BASICS.items():
            for name, f in fields.items():
                array = values[f"{group}/{name}"].astype(f.dtype)
                self._add(f"{group}/{name}", f.dims, array, (f.unit, f.meaning))

    def _basics_of(self, checkpoint: int, direction: int) -> dict[str, float]:
        """Return the three basic measures of one line."""
        measured = self.arrays["status"][checkpoint, direction] >= MEASURED
        points = {name: self.arrays[name][checkpoint, direction][measured] for name in POINT_FIELDS}
        losses = loss_range.loss_range(points["loss"])
        changes = gradient_predictiveness.gradient_predictiveness(points["gradient_change"])
        smooth = self._smoothness_of(checkpoint, direction, measured, points)
        return {
            **{f"{loss_range.NAME}/{name}": value for name, value in losses.items()},
            **{f"{gradient_predictiveness.NAME}/{name}": v for name, v in changes.items()},
            **{f"{effective_smoothness.NAME}/{name}": value for name, value in smooth.items()},
        }

    def _smoothness_of(
        self, checkpoint: int, direction: int, measured: np.ndarray, points: dict[str, np.ndarray]
    ) -> dict[str, float]:
        plan = self.plan
        sizes = plan.step_sizes(checkpoint, plan.directions[direction])[measured]
        multiples = np.array(plan.step_multiples)[measured]
        norm = self.arrays["gradient_norm"][checkpoint]
        peak = effective_smoothness.find_peak(points, sizes, norm)
        rate = plan.checkpoints[checkpoint].learning_rate
        return {
            "beta": peak.beta,
            "step_multiple_at_beta": multiples[peak.index] if peak.index >= 0 else np.nan,
            "at_smallest_step": peak.at_smallest_step,
            "saturated": peak.saturated,
            "limit": self.arrays["limit"][checkpoint, direction],
            "beta_times_lr": peak.beta * (np.nan if rate is None else rate),
            "one_over_beta": 1 / peak.beta if peak.beta > 0 else np.nan,
        }

    def _add_plane(self, plane: PlaneSpec) -> None:
        count = plane.grid.count
        losses = np.full((self.shape[0], count * count), np.nan)
        for key, unit in self.units.items():
            if key.kind == "plane" and "loss" in unit.arrays:
                losses[key.checkpoint, key.start : key.stop] = unit.arrays["loss"]
            if key.kind == "plane" and "x" in unit.arrays:
                for axis, label in zip("xy", plane.axes, strict=True):
                    about = ("", f"where the checkpoint lies along {label}")
                    self._add(f"plane/trajectory_{axis}", ("checkpoint",), unit.arrays[axis], about)
        for axis, label in zip("xy", plane.axes, strict=True):
            about = ("", f"multiples along {label}")
            self._add(f"plane/plane_{axis}", (f"plane_{axis}",), plane.grid.multiples(), about)
        surfaces = losses.reshape(self.shape[0], count, count)
        about = ("loss", "L(θ₀ − a·d₁ − b·d₂), a along plane_x and b along plane_y")
        self._add("plane/loss", ("checkpoint", "plane_y", "plane_x"), surfaces, about)

    def _add_measure(self, name: str, fields: Mapping[str, Field]) -> None:
        """Stack a measure over checkpoints and directions; nothing if no unit has it."""
        for field_name, field in fields.items():
            placed = self._placed(name, field_name, field)
            if not placed:
                continue
            sample = next(iter(placed.values()))
            lead = tuple(d for d in ("checkpoint", "direction") if d in field.dims)
            shape = self.shape[: len(lead)] if lead != ("direction",) else self.shape[1:2]
            sample, placed = self._spread(field, sample, placed)
            whole = np.full(shape + sample.shape, _blank(field.dtype), dtype=_dtype(field.dtype))
            for place, values in placed.items():
                whole[place[: len(lead)]] = values
            about = (field.unit, field.meaning)
            self._add(f"{name}/{field_name}", field.dims, whole, about)

    def _spread(
        self, field: Field, sample: np.ndarray, placed: dict[tuple[int, int], np.ndarray]
    ) -> tuple[np.ndarray, dict[tuple[int, int], np.ndarray]]:
        """Put arrays that a measure has on the grid's steps on the axis of all steps."""
        if "step" not in field.dims or len(self.asked) == self.shape[2]:
            return sample, placed
        own = [dim for dim in field.dims if dim not in ("checkpoint", "direction")]
        axis = own.index("step")
        where = np.searchsorted(self.plan.step_multiples, self.asked)
        shape = (*sample.shape[:axis], self.shape[2], *sample.shape[axis + 1 :])
        spread = {}
        for place, values in placed.items():
            spread[place] = np.full(shape, _blank(field.dtype), dtype=_dtype(field.dtype))
            np.moveaxis(spread[place], axis, 0)[where] = np.moveaxis(values, axis, 0)
        return next(iter(spread.values())), spread

    def _placed(
        self, name: str, field_name: str, field: Field
    ) -> dict[tuple[int, int], np.ndarray]:
        """Return the arrays of one field by (checkpoint, direction)."""
        placed = {}
        for key, unit in self.units.items():
            if key.kind == "measure" and key.name == name and field_name in unit.arrays:
                placed[(key.checkpoint, 0)] = np.asarray(unit.arrays[field_name])
            if key.kind == "line" and f"{name}/{field_name}" in unit.arrays:
                position = self.plan.directions.index(key.name)
                values = np.asarray(unit.arrays[f"{name}/{field_name}"])
                if "direction" in field.dims or (key.checkpoint, 0) not in placed:
                    column = position if "direction" in field.dims else 0
                    placed[(key.checkpoint, column)] = values
        return placed

    def _attributes(self) -> dict[str, Any]:
        plan = self.plan
        notices: dict[str, list[str]] = defaultdict(list)
        for unit in sorted(self.units.values(), key=lambda unit: unit.key):
            label = plan.checkpoints[unit.key.checkpoint].label if unit.key.checkpoint >= 0 else ""
            for text in (*unit.notices, *([unit.error] if unit.error else [])):
                notices[text].append(label)
        attributes: dict[str, Any] = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "status": "complete" if self._complete() else "partial",
            "created": plan.created,
            "command": plan.command,
            "settings": json.dumps(plan.settings, sort_keys=True),
            "notices": json.dumps([{"text": t, "checkpoints": c} for t, c in notices.items()]),
            **self._choice(),
        }
        for name, value in plan.provenance.items():
            attributes[name] = value if isinstance(value, str | int | float) else json.dumps(value)
        return attributes

    def _choice(self) -> dict[str, Any]:
        """Return strategy and chunk as they were in the end, and the conditions."""
        choices = [key for key in self.units if key.kind == "choice"]
        last = max(choices, key=lambda key: key.start, default=None)
        return {
            "strategy": last.name if last else "plain",
            "chunk": last.stop if last else 1,
            "threads": next((key.stop for key in self.units if key.kind == "threads"), 0),
            "layout": next((key.name for key in self.units if key.kind == "threads"), ""),
        }

    def _complete(self) -> bool:
        """Whether every unit that the plan needs is there and none failed."""
        if any(unit.error for unit in self.units.values()):
            return False
        finished: defaultdict[tuple[int, str], int] = defaultdict(int)
        for key in self.units:
            if key.kind == "line":
                finished[key.checkpoint, key.name] += key.stop - key.start
        lines = all(
            finished[index, name] >= len(self.asked)
            for index in range(self.shape[0])
            for name in self.plan.directions
        )
        measured = {(key.checkpoint, key.name) for key in self.units if key.kind == "measure"}
        sites = self.plan.provenance.get("site_measures", ())
        return (
            lines
            and self._plane_complete()
            and all((i, name) in measured for i in range(self.shape[0]) for name in sites)
        )

    def _plane_complete(self) -> bool:
        plan = self.plan
        points = sum(key.stop - key.start for key in self.units if key.kind == "plane")
        return plan.plane is None or points >= plan.plane.points * len(plan.plane_checkpoints)


def _dtype(name: str) -> Any:
    return object if name == "str" else np.dtype(name)


def _blank(name: str) -> Any:
    return {"str": "", "float64": np.nan, "float32": np.nan}.get(name, 0)
