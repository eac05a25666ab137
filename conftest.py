"""What every test of this checkout needs before it imports anything."""

from __future__ import annotations

import importlib.util

import torch


def _declare_torchvision_operators() -> None:
    """Let a torchvision built for CUDA be imported beside a torch built for the CPU.

    Its compiled operators cannot be loaded there, and its import fails on those that are not
    declared; so do the imports of whatever uses it when it is installed. Nothing in the tests
    calls them. Each plugin that needs this does it too, so that its tests pass on their own.
    """
    if importlib.util.find_spec("torchvision") is None or torch.version.cuda is not None:
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor"
            )


_declare_torchvision_operators()
