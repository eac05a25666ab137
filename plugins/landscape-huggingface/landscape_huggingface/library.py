"""transformers and datasets, or a clear word about why they cannot be used; always offline."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from landscape_cli.errors import AdapterError


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:  # a torchvision that does not fit raises
        raise AdapterError(
            f"{name} cannot be used beside this torch",
            seen=f"torch {torch.__version__}; {type(error).__name__}: {str(error).splitlines()[0]}",
            hint="pip install transformers datasets; a torchvision must be the one of this torch",
        ) from error


transformers = _import("transformers")
_import("transformers.image_utils")  # what fails where a torchvision does not fit
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
