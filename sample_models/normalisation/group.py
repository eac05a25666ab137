"""Group normalisation: every sample by groups of its own features."""

from __future__ import annotations

from torch import nn

from landscape_cli.errors import AdapterError

_GROUP_SIZE = 4


def make_group(
    features: int,
    dims: int,  # noqa: ARG001 - every maker takes both
    *,
    groups: int | None = None,
    group_size: int | None = None,
    eps: float = 1e-5,
    affine: bool = True,
) -> nn.Module:
    """Return group normalisation over consecutive features and every axis behind them.

    Args:
        features: size of axis 1.
        dims: number of axes after the features; any.
        groups: number of groups.
        group_size: features of one group. With neither given, the largest size up to 4 that
            divides the features; 4 is the size that Lange et al. (2022) use for CIFAR.
        eps: added to the variance.
        affine: whether scale and shift are trained.

    Raises:
        AdapterError: If both are given, or the features cannot be divided so.

    Reference:
        Wu and He (2018).
    """
    if groups is not None and group_size is not None:
        raise AdapterError(
            "group normalisation takes the groups or their size, not both",
            seen=f"groups={groups}, group_size={group_size}",
            hint="give one of them",
        )
    count = groups if groups is not None else features // _size(features, group_size)
    if count < 1 or features % count:
        raise _indivisible(features, f"groups={groups}")
    return nn.GroupNorm(count, features, eps=eps, affine=affine)


def _size(features: int, group_size: int | None) -> int:
    if group_size is None:
        return next(size for size in range(_GROUP_SIZE, 0, -1) if features % size == 0)
    if group_size < 1 or features % group_size:
        raise _indivisible(features, f"group_size={group_size}")
    return group_size


def _indivisible(features: int, seen: str) -> AdapterError:
    return AdapterError(
        f"{features} features cannot be divided into such groups",
        seen=seen,
        hint="a divisor of every layer's width, or neither option",
    )
