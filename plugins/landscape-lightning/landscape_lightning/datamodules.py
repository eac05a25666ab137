"""The data adapter ``lightning``: ``--data 'lightning:FILE.py:DataModule?loader=val'``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from landscape_cli.adapters.building import is_data
from landscape_cli.adapters.registry import describe
from landscape_cli.errors import AdapterError
from landscape_lightning import classes, hyperparameters

STAGES = {"train": "fit", "val": "fit", "test": "test", "predict": "predict"}
"""Loaders, and the stage that ``setup`` is called with for each."""


def open_data(
    target: str,
    *,
    loader: str = "train",
    checkpoint: str | None = None,
    prepare: bool = False,
    **options: Any,
) -> Iterable[Any]:
    """Return the batches of a LightningDataModule, as its loader makes them.

    Args:
        target: ``FILE.py:CLASS``, or ``package.module:CLASS`` of an installed package.
        loader: ``train``, ``val``, ``test`` or ``predict``.
        checkpoint: a ``.ckpt`` file whose recorded hyper-parameters of the data module are used
            where no option says otherwise. It is read without executing anything in it.
        prepare: whether ``prepare_data`` is called, which often downloads.
        **options: keyword arguments of the class.

    Returns:
        The loader: its own batch size and order hold, ``--batch-size`` does not.

    Raises:
        AdapterError: If there is no such class or loader, or it raises.
    """
    _check_options(loader, prepare)
    kind = classes.load(target, "data")
    method = f"{loader}_dataloader"
    if issubclass(kind, nn.Module) or not callable(getattr(kind, method, None)):
        raise AdapterError(
            f"{kind.__name__} is not a LightningDataModule with a {method}",
            seen=target,
            hint="loader=" + ", ".join(STAGES),
        )
    parameters = hyperparameters.merge(kind, checkpoint, options, key="datamodule_hyper_parameters")
    module = classes.create(kind, parameters)
    return _only(_open(module, loader, method, prepare=prepare), method)


def _open(module: Any, loader: str, method: str, *, prepare: bool) -> Any:
    steps = [
        *([("prepare_data", ())] if prepare else []),
        ("setup", (STAGES[loader],)),
        (method, ()),
    ]
    opened = None
    for name, arguments in steps:
        try:
            opened = getattr(module, name, lambda *_: None)(*arguments)
        except (Exception, SystemExit) as error:
            raise AdapterError(
                f"{type(module).__name__}.{name} raised an error",
                seen=describe(error),
                hint="prepare=True, if prepare_data has not run yet" if not prepare else "--debug",
            ) from error
    return opened


def _only(opened: Any, method: str) -> Iterable[Any]:
    """Return the one loader."""
    if isinstance(opened, list | tuple) and len(opened) == 1:
        opened = opened[0]
    if is_data(opened) and not isinstance(opened, list | tuple):
        return opened  # type: ignore[no-any-return]
    raise AdapterError(
        f"{method} did not return one loader",
        seen=f"a {type(opened).__name__}",
        hint="--data FILE.py:FACTORY, a function that returns the batches",
    )


def _check_options(loader: str, prepare: object) -> None:
    if loader not in STAGES:
        raise AdapterError(
            f"the option 'loader' cannot be {loader!r}",
            seen=f"loader={loader}",
            hint=", ".join(STAGES),
        )
    if type(prepare) is not bool:
        raise AdapterError(
            f"the option 'prepare' cannot be {prepare!r}",
            seen=f"prepare={prepare}",
            hint="True or False",
        )
