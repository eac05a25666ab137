"""The model adapter ``timm``: ``--model 'timm:vit_tiny_patch16_224?num_classes=10'``."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from torch import nn

from landscape_cli.errors import AdapterError
from landscape_timm.library import timm

WEIGHTS = (
    *("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "pretrained_model_args"),
    *("checkpoint_path", "cache_dir"),
)
"""Options of ``timm.create_model`` that are about loading weights."""


def build_model(target: str, **options: Any) -> nn.Module:
    """Return one of timm's models, without weights.

    Args:
        target: a name that ``timm.list_models()`` has, with or without the tag of its weights.
        **options: keyword arguments of ``timm.create_model``: ``num_classes``, ``img_size``, ….

    Raises:
        AdapterError: If the target or an option is unknown, or asks for weights.

    Example:
        >>> model = build_model("vit_tiny_patch16_224", num_classes=10, img_size=32)
        >>> model.head.out_features
        10
    """
    check_name(target)
    _refuse_weights(options)
    try:
        model: nn.Module = timm.create_model(target, pretrained=False, **options)
    except (TypeError, ValueError, AssertionError, RuntimeError, KeyError) as error:
        told = ", ".join(f"{key}={value}" for key, value in options.items())
        raise AdapterError(
            f"timm's {target} refuses these options",
            seen=told or "(none)",
            hint=str(error).splitlines()[0] if str(error) else type(error).__name__,
        ) from error
    return model


def check_name(target: str) -> None:
    """Refuse what is not a model that timm builds by itself.

    Raises:
        AdapterError: If the architecture or its tag is unknown, or the name is a place to load
            from.
    """
    architecture, _, tag = target.partition(".")
    known = [] if ":" in target or "/" in target else timm.list_models()
    if architecture not in known:
        close = difflib.get_close_matches(architecture, known, n=3)
        raise AdapterError(
            f"timm {timm.__version__} has no model {target!r}",
            seen=target,
            hint=", ".join(close) or "timm.list_models() names them; hubs are not asked",
        )
    tags = [name.partition(".")[2] for name in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        raise AdapterError(
            f"timm {timm.__version__} has no weights {tag!r} for {architecture}",
            seen=target,
            hint=", ".join(tags) or f"{architecture} alone",
        )


def _refuse_weights(options: Mapping[str, Any]) -> None:
    for name in WEIGHTS:
        if name in options:
            raise AdapterError(
                "no weights are downloaded or loaded",
                seen=f"{name}={options[name]}",
                hint="the weights come from the checkpoint: leave the option out",
            )
