"""How a table becomes a split: the options that every data set takes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from landscape_cli.errors import AdapterError

Split = Literal["train", "test", "all"]
DType = Literal["float32", "float64"]


@dataclass(frozen=True)
class Preparation:
    """Which samples are used and how their values are changed.

    Attributes:
        split: which part.
        test_fraction: share of the test part, above 0 and below 1.
        seed: decides the split, and what is generated; 0 to 2³² − 1.
        standardise: whether to subtract the mean and divide by the deviation of the train part.
        flatten: whether images become vectors.
        dtype: type of the inputs and of regression targets.

    Raises:
        AdapterError: If a value cannot be meant.
    """

    split: Split = "train"
    test_fraction: float = 0.2
    seed: int = 0
    standardise: bool = True
    flatten: bool = False
    dtype: DType = "float32"

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return the names of the options."""
        return tuple(item.name for item in fields(cls))

    @classmethod
    def split_off(cls, options: dict[str, Any]) -> tuple[Preparation, dict[str, Any]]:
        """Return the preparation that the options describe, and the options that remain."""
        own = {name: options[name] for name in cls.names() if name in options}
        return cls(**own), {name: value for name, value in options.items() if name not in own}

    def __post_init__(self) -> None:
        _check_choice("split", self.split, get_args(Split))
        _check_choice("dtype", self.dtype, get_args(DType))
        _check_choice("standardise", self.standardise, (True, False))
        _check_choice("flatten", self.flatten, (True, False))
        if not _is_number(self.test_fraction) or not 0 < self.test_fraction < 1:
            raise _refusal("test_fraction", self.test_fraction, "give a number between 0 and 1")
        whole = isinstance(self.seed, int) and not isinstance(self.seed, bool)
        if not whole or not 0 <= self.seed < 2**32:
            raise _refusal("seed", self.seed, "give a whole number from 0 to 4294967295")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    if not any(value == choice and type(value) is type(choice) for choice in choices):
        raise _refusal(name, value, "give " + " or ".join(map(str, choices)))


def _refusal(name: str, value: object, hint: str) -> AdapterError:
    return AdapterError(
        f"the option {name!r} cannot be {value!r}", seen=f"{name}={value}", hint=hint
    )
