"""Let a torchvision built for CUDA be imported beside a torch built for the CPU."""

import importlib.util

import torch


def _declare_operators():
    if importlib.util.find_spec("torchvision") is None or torch.version.cuda is not None:
        return
    try:
        import torchvision  # noqa: F401
    except RuntimeError:  # its compiled operators cannot be loaded; nothing here calls them
        for name in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor"
            )


_declare_operators()
