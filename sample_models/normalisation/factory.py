"""Every normalisation by name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from landscape_cli.errors import AdapterError
from sample_models.normalisation.batch import make_batch
from sample_models.normalisation.group import make_group
from sample_models.normalisation.layer import make_layer
from sample_models.normalisation.lp import make_lp
from sample_models.normalisation.noisy import make_noisy
from sample_models.normalisation.none import make_none
from sample_models.normalisation.renorm import make_renorm
from sample_models.normalisation.weight import make_weight
from sample_models.options import accepted_options, bind

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

_MAKERS: dict[str, Callable[..., nn.Module]] = {
    "none": make_none,
    "batch": make_batch,
    "noisy": make_noisy,
    "l1": partial(make_lp, order="l1"),
    "l2": partial(make_lp, order="l2"),
    "linf": partial(make_lp, order="linf"),
    "layer": make_layer,
    "group": make_group,
    "renorm": make_renorm,
    "weight": make_weight,
}

NAMES = tuple(_MAKERS)
"""What ``norm=`` can be."""


def make(name: str, features: int, dims: int, **options: Any) -> nn.Module:
    """Return the normalisation called `name`, for inputs of shape (batch, features, *dims axes).

    Args:
        name: one of `NAMES`.
        features: size of axis 1.
        dims: number of axes after it: 0 for dense layers, 2 for images.
        options: those of the normalisation (`accepted_norm_options`).

    Raises:
        AdapterError: If the name or an option is unknown, or a value cannot be meant.

    Example:
        >>> make("group", 8, 2, groups=2).num_groups
        2
    """
    accepted = accepted_norm_options(name)
    return _MAKERS[name](features, dims, **bind(options, accepted, f"the normalisation {name!r}"))


def accepted_norm_options(name: str) -> dict[str, Any]:
    """Return the type of every option that the normalisation `name` takes.

    Raises:
        AdapterError: If there is no such normalisation.
    """
    if name not in _MAKERS:
        raise AdapterError(f"no normalisation is named {name!r}", seen=name, hint=", ".join(NAMES))
    return accepted_options(_MAKERS[name], hidden=("features", "dims"))
