"""transformers and datasets, or a clear word about why they cannot be used; always offline."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from landscape_cli.errors import AdapterError


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        raise AdapterError(
            f"{name} cannot be used beside this torch",
            seen=f"torch {torch.__version__}; {type(error).__name__}: {str(error).splitlines()[0]}",
            hint="pip install --upgrade transformers datasets",
        ) from error


@contextmanager
def _without_broken_torchvision() -> Iterator[None]:
    """Let a torchvision that is built for another torch count as none.

    transformers uses it for pictures alone, but cannot be imported beside one that raises. It
    looks once and remembers.
    """
    try:
        importlib.import_module("torchvision")
    except ImportError:
        yield
    except (OSError, RuntimeError):
        modules: dict[str, Any] = sys.modules
        modules["torchvision"] = None  # what Python takes for a module that is missing
        try:
            _forget_torchvision()
            yield
        finally:
            del modules["torchvision"]
    else:
        yield


def _forget_torchvision() -> None:
    """Let transformers look again, if it was imported before."""
    known = _import("transformers.utils.import_utils")
    for name in ("is_torchvision_available", "is_torchvision_v2_available"):
        forget = getattr(getattr(known, name, None), "cache_clear", None)
        if forget is not None:
            forget()


with _without_broken_torchvision():
    transformers = _import("transformers")
    _import("transformers.image_utils")
    CONFIGS = _import("transformers.models.auto.configuration_auto")
    MODELS = _import("transformers.models.auto.modeling_auto")
    LOSSES = _import("transformers.loss.loss_utils")
datasets = _import("datasets")
_hub = _import("huggingface_hub.constants")


@contextmanager
def offline() -> Iterator[None]:
    """Keep both libraries from the network, and from drawing progress bars, for a while."""
    flags = [(_hub, "HF_HUB_OFFLINE"), (datasets.config, "HF_HUB_OFFLINE")]
    before = [getattr(owner, name) for owner, name in flags]
    bars = datasets.is_progress_bar_enabled()
    for owner, name in flags:
        setattr(owner, name, True)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        for (owner, name), value in zip(flags, before, strict=True):
            setattr(owner, name, value)
        if bars:
            datasets.enable_progress_bars()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type."""
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__
