"""What a run is asked to do: frozen dataclasses, their parsing, TOML and JSON both ways."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import unquote

import numpy as np

from landscape_cli.errors import SpecError

NormMode = Literal["batch", "running", "frozen"]
DType = Literal["float32", "float64", "bfloat16"]
Spacing = Literal["log", "lin"]
_ADAPTER_NAME = re.compile(r"[A-Za-z_][\w-]+")
"""What is an adapter before ``:FILE.py:NAME``; a path has a dot or a slash, a drive one letter."""
STRATEGIES = ("plain", "compressed", "stacked", "graph", "parallel", "compiled")
PLACEMENT = ("engine", "workers", "gpus_per_worker", "address", "device")
"""Settings that say where a run is measured; of them only the kind of device decides numbers."""
MOST_PROCESSES = 256
"""Workers that one machine may be asked for; more is a slip of the finger."""
LOSSES = ("cross-entropy", "mse", "sse", "l1", "bce", "nll", "model")


@dataclass(frozen=True)
class ComponentSpec:
    """A model, data set or loss: ``ADAPTER:TARGET?key=value`` or ``FILE.py:FACTORY?key=value``.

    Attributes:
        adapter: name of the adapter; ``file`` for the user's own Python file.
        target: what the adapter is asked for.
        options: keyword arguments, Python literals where they parse as such.

    Example:
        >>> ComponentSpec.parse("sample:vgg?width=8&norm=batch", "model").options
        {'width': 8, 'norm': 'batch'}
    """

    adapter: str
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, what: str) -> ComponentSpec:
        """Read a spec; `what` names it in the error ("model", "data").

        Raises:
            SpecError: If it has no adapter, no target, or a malformed option.
        """
        address, _, query = text.partition("?")
        options = parse_options(query, text, what)
        adapter, separator, target = address.partition(":")
        file, _, factory = address.rpartition(":")
        if file.endswith(".py") and not (_ADAPTER_NAME.fullmatch(adapter) and ":" in target):
            return cls("file", f"{file}:{factory}", options)
        if not adapter or not separator or not target:
            raise SpecError(
                f"the {what} spec names no adapter and target",
                seen=text or "(nothing)",
                hint=f"--{what} ADAPTER:TARGET?key=value or --{what} FILE.py:FACTORY",
            )
        return cls(adapter, target, options)

    def __str__(self) -> str:
        address = self.target if self.adapter == "file" else f"{self.adapter}:{self.target}"
        query = "&".join(f"{key}={value}" for key, value in self.options.items())
        return f"{address}?{query}" if query else address


def parse_options(query: str, text: str, what: str) -> dict[str, Any]:
    """Read ``key=value&key=value``; `text` and `what` are for the error."""
    options: dict[str, Any] = {}
    for item in filter(None, query.split("&")):
        key, separator, value = item.partition("=")
        if not separator or not key.isidentifier():
            raise SpecError(
                f"an option of the {what} spec is not key=value",
                seen=f"{item!r} in {text}",
                hint=f"--{what} ADAPTER:TARGET?width=8&norm=batch",
            )
        if key in options:
            raise SpecError(
                f"an option of the {what} spec is given twice",
                seen=f"{key!r} in {text}",
                hint="give each option once",
            )
        options[key] = _literal(unquote(value))
    return options


def _literal(text: str) -> Any:
    if len(text) > 10_000:
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


@dataclass(frozen=True)
class StepGrid:
    """The step sizes of a line, as multiples of the training step size: ``LO:HI:COUNT[:log|lin]``.

    Example:
        >>> StepGrid.parse("0.5:4:4").multiples().tolist()
        [0.5, 1.0, 2.0, 4.0]
    """

    low: float
    high: float
    count: int
    spacing: Spacing = "log"

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem:
            raise SpecError(problem, seen=str(self), hint="--steps 0.5:4:16 or --steps -1:1:21:lin")

    def _problem(self) -> str:
        if self.spacing not in get_args(Spacing):
            return "the spacing of the steps is neither log nor lin"
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            return "the ends of the steps are not finite"
        if not self.low < self.high:
            return "the first step multiple is not below the last"
        if not 1 <= self.count <= 1_000_000:
            return "the number of steps is not between 1 and 1,000,000"
        if self.spacing == "log" and self.low <= 0:
            return "logarithmic steps must start above 0"
        return ""

    @classmethod
    def parse(cls, text: str) -> StepGrid:
        """Read ``LO:HI:COUNT[:log|lin]``."""
        parts = text.split(":")
        try:
            low, high, count = float(parts[0]), float(parts[1]), int(parts[2])
        except (ValueError, IndexError):
            parts = []
        if len(parts) not in (3, 4):
            raise SpecError(
                "the steps are not LO:HI:COUNT[:log|lin]", seen=text, hint="--steps 0.5:4:16:log"
            )
        return cls(low, high, count, parts[3] if len(parts) == 4 else "log")  # type: ignore[arg-type]

    def multiples(self) -> np.ndarray:
        """Return the step multiples, float64, shape (count,), ascending."""
        space = np.geomspace if self.spacing == "log" else np.linspace
        return np.asarray(space(self.low, self.high, self.count), dtype=np.float64)

    def __str__(self) -> str:
        return f"{self.low:g}:{self.high:g}:{self.count}:{self.spacing}"


AUTO_GRID = "0.5:4:9:log"
"""The steps that ``--steps auto`` starts from."""
AUTO_TOLERANCE = 0.01


def parse_tolerance(steps: str) -> float | None:
    """Return the tolerance in ``auto[:TOL]``, None for steps that are given.

    Raises:
        SpecError: If it is not a number between 1e-6 and 1.

    Example:
        >>> parse_tolerance("auto:0.001")
        0.001
    """
    word, _, text = steps.partition(":")
    if word != "auto":
        return None
    try:
        tolerance = float(text) if text else AUTO_TOLERANCE
    except ValueError:
        tolerance = math.nan
    if not 1e-6 <= tolerance < 1:
        raise SpecError(
            "the tolerance of the steps is not between 1e-6 and 1",
            seen=steps,
            hint="--steps auto:0.01",
        )
    return tolerance


_COUNTED = ("random", "random-filter")
_TARGETED = ("toward", "file")


@dataclass(frozen=True)
class DirectionSpec:
    """One ``--direction``: its kind and what follows the colon.

    Example:
        >>> DirectionSpec.parse("random:2").labels()
        ('random:0', 'random:1')
    """

    kind: str
    argument: str = ""

    @classmethod
    def parse(cls, text: str) -> DirectionSpec:
        """Read one direction.

        Raises:
            SpecError: If the name is unknown or its number or path is missing.
        """
        kind, _, argument = text.partition(":")
        if kind in ("gradient", "update") and not argument:
            return cls(kind)
        if kind in _COUNTED and argument.isdecimal() and 0 < int(argument) <= 100_000:
            return cls(kind, str(int(argument)))
        if kind == "eigenvector" and argument.isdecimal() and int(argument) <= 10_000:
            return cls(kind, str(int(argument)))
        if kind in _TARGETED and argument:
            return cls(kind, argument)
        raise SpecError(
            "no such direction",
            seen=text,
            hint="gradient, random:N, random-filter:N, eigenvector:K, toward:CHECKPOINT, "
            "update or file:PATH",
        )

    @classmethod
    def of_label(cls, label: str) -> DirectionSpec:
        """Return what one label along the direction axis stands for; ``random:0`` is draw 0."""
        kind, _, argument = label.partition(":")
        return cls(kind, argument)

    @property
    def scaled(self) -> bool:
        """Whether the direction is scaled to the length of the gradient."""
        return self.kind not in ("toward", "update", "file")

    def labels(self) -> tuple[str, ...]:
        """Return the labels that this direction has in the file, one per draw."""
        if self.kind in _COUNTED:
            return tuple(f"{self.kind}:{index}" for index in range(int(self.argument)))
        return (str(self),)

    def __str__(self) -> str:
        return f"{self.kind}:{self.argument}" if self.argument else self.kind


@dataclass(frozen=True)
class ProbeSpec:
    """Everything that decides the numbers of a probe, and where it runs.

    The names are those of the command line and of the ``settings`` attribute of a run.
    """

    checkpoints: tuple[str, ...]
    model: str
    data: str
    loss: str = "cross-entropy"
    batch_size: int = 128
    batches: int = 1
    lr: float | None = None
    steps: str = "0.5:4:16:log"
    directions: tuple[str, ...] = ("gradient",)
    measures: tuple[str, ...] = ()
    norm_mode: NormMode = "batch"
    plane: str | None = None
    plane_steps: str = "-1:1:21:lin"
    device: str = "auto"
    dtype: DType = "float32"
    weights: str = "default"
    parameters: tuple[str, ...] = ()
    freeze: tuple[str, ...] = ()
    chunk: int | None = None
    strategy: str = "auto"
    micro_batch: int | None = None
    allow_tf32: bool = False
    engine: str = "local"
    workers: int = 1
    gpus_per_worker: float | None = None
    address: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _check_range("batch_size", self.batch_size, 1)
        _check_range("batches", self.batches, 1)
        _check_range("workers", self.workers, 1)
        _check_range("seed", self.seed, 0, 2**63 - 1)
        if self.chunk is not None:
            _check_range("chunk", self.chunk, 1)
        _check_choice("norm_mode", self.norm_mode, get_args(NormMode))
        _check_choice("dtype", self.dtype, get_args(DType))
        _check_choice("engine", self.engine, ("local", "ray"))
        self._check_placement()
        _check_choice("strategy", self.strategy, ("auto", *STRATEGIES))
        if self.micro_batch is not None:
            _check_range("micro_batch", self.micro_batch, 1)
        if self.lr is not None and not (math.isfinite(self.lr) and self.lr > 0):
            raise SpecError(
                "the learning rate is not a positive number", seen=self.lr, hint="--lr 0.1"
            )
        if self.loss not in LOSSES and ".py:" not in self.loss:
            raise SpecError(
                f"no loss is named {self.loss!r}",
                seen=", ".join(LOSSES),
                hint="one of these, or FILE.py:FUNCTION",
            )
        self.step_grid()
        self.direction_specs()
        if self.plane is not None:
            from landscape_cli.planes import PlaneSpec

            PlaneSpec.parse(self.plane, self.plane_steps)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that are named, ``cuda:0,cuda:1`` being two."""
        return tuple(name.strip() for name in self.device.split(","))

    @property
    def processes(self) -> int:
        """How many processes measure: one for each device, or as many as `workers` says."""
        return max(self.workers, len(self.devices))

    def _check_devices(self) -> None:
        names = self.devices
        kinds = {name.partition(":")[0] for name in names}
        problems = {
            "a device in the list has no name": "" in names,
            "a list of devices names each of them": "auto" in kinds or "cuda" in names,
            "devices of several kinds do not round alike": len(kinds) > 1,
            "a list of devices is for the engine local": self.engine != "local",
            "there are fewer workers than devices": 1 < self.workers < len(names),
        }
        for what, wrong in problems.items():
            if wrong and len(names) > 1:
                raise SpecError(
                    what,
                    seen=f"--device {self.device} --workers {self.workers} --engine {self.engine}",
                    hint="--device cuda:0,cuda:1, or --device cuda --workers 2",
                )

    def _check_placement(self) -> None:
        self._check_devices()
        if self.engine == "local":
            _check_range("workers", self.processes, 1, MOST_PROCESSES)
        gpus = self.gpus_per_worker
        if gpus is not None and not 0 <= gpus <= 64:
            raise SpecError(
                "the GPUs per worker are not between 0 and 64",
                seen=gpus,
                hint="--gpus-per-worker 1, or 0.5 where two workers share one",
            )
        given = [name for name in ("gpus_per_worker", "address") if getattr(self, name) is not None]
        if given and self.engine != "ray":
            option = "--" + given[0].replace("_", "-")
            raise SpecError(
                f"{option} is for the engine ray",
                seen=f"{option} {getattr(self, given[0])}, --engine {self.engine}",
                hint="--engine ray, or leave it out",
            )

    def here(self) -> ProbeSpec:
        """Return the same settings, to be measured in this process, on the first device."""
        fields = {item.name: item.default for item in dataclasses.fields(self)}
        placement: dict[str, Any] = {name: fields[name] for name in PLACEMENT}
        return dataclasses.replace(self, **{**placement, "device": self.devices[0]})

    def step_grid(self) -> StepGrid:
        """Return the parsed steps; those that a refined line starts from."""
        return StepGrid.parse(AUTO_GRID if self.step_tolerance is not None else self.steps)

    @property
    def step_tolerance(self) -> float | None:
        """The tolerance of ``--steps auto[:TOL]``, None where the steps are given."""
        return parse_tolerance(self.steps)

    def direction_specs(self) -> tuple[DirectionSpec, ...]:
        """Return the parsed directions."""
        return tuple(DirectionSpec.parse(text) for text in self.directions)

    def direction_labels(self) -> tuple[str, ...]:
        """Return the labels along the direction axis, in order, each once."""
        labels = [label for spec in self.direction_specs() for label in spec.labels()]
        return tuple(dict.fromkeys(labels))

    def to_json(self) -> str:
        """Return the settings as one line of JSON, keys sorted."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> ProbeSpec:
        """Build a spec from names and plain values, as TOML and JSON have them.

        Raises:
            SpecError: If a name is unknown, a required one is missing, or a type is wrong.
        """
        known = {item.name: item for item in dataclasses.fields(cls)}
        for name in values:
            if name not in known:
                raise SpecError(
                    f"no setting is named {name!r}",
                    seen=", ".join(known),
                    hint="check the spelling",
                )
        for name in ("checkpoints", "model", "data"):
            if not values.get(name):
                raise SpecError(
                    f"a probe needs {name}",
                    seen="(nothing)",
                    hint="landscape probe CHECKPOINT --model SPEC --data SPEC -o RUN.h5",
                )
        return cls(**{name: _typed(known[name], value) for name, value in values.items()})

    @classmethod
    def from_json(cls, text: str) -> ProbeSpec:
        """Read what `to_json` wrote."""
        try:
            values = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise SpecError("the settings are not JSON", seen=text[:80], hint=str(error)) from None
        if not isinstance(values, dict):
            raise SpecError("the settings are not a JSON object", seen=text[:80], hint="{...}")
        return cls.from_mapping(values)


def read_config(path: Path) -> dict[str, Any]:
    """Return the settings in a TOML file, names with ``-`` or ``_``.

    Raises:
        SpecError: If the file cannot be read or is not TOML.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(
            "the config file cannot be read",
            seen=f"{path}: {error.strerror}",
            hint="check --config",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError("the config file is not TOML", seen=str(path), hint=str(error)) from None
    return {name.replace("-", "_"): value for name, value in values.items()}


def _typed(item: dataclasses.Field[Any], value: Any) -> Any:
    """Return the value of a setting in the type of its field.

    Raises:
        SpecError: If it is of another type.
    """
    wanted = str(item.type)
    if value is None and "None" in wanted:
        return None
    if wanted.startswith("tuple"):
        texts = [value] if isinstance(value, str) else value
        if isinstance(texts, Sequence) and all(isinstance(text, str) for text in texts):
            return tuple(texts)
    elif isinstance(value, _accepted_types(wanted)) and isinstance(value, bool) == (
        "bool" in wanted
    ):
        return value * 1.0 if "float" in wanted and isinstance(value, int) else value
    raise SpecError(
        f"the setting {item.name!r} has the wrong type", seen=repr(value), hint=f"give {wanted}"
    )


def _accepted_types(wanted: str) -> tuple[type, ...]:
    named: dict[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float)}
    return named.get(wanted.partition(" ")[0], (str,))


def _check_range(name: str, value: int, low: int, high: int | None = None) -> None:
    if value < low or (high is not None and value > high):
        raise SpecError(
            f"--{name.replace('_', '-')} is out of range",
            seen=value,
            hint=f"a whole number from {low}" + (f" to {high}" if high is not None else ""),
        )


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise SpecError(
            f"--{name.replace('_', '-')} has no such value", seen=value, hint=", ".join(choices)
        )
