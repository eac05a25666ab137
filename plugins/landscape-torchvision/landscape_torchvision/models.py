"""The model adapter ``torchvision``: ``--model 'torchvision:resnet18?num_classes=10'``."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from landscape_cli.errors import AdapterError
from landscape_torchvision.library import torchvision

WEIGHTS = ("weights", "weights_backbone", "pretrained", "pretrained_backbone", "progress")
"""Options of torchvision's builders that are about downloading."""

DETECTION = "torchvision.models.detection"


def build_model(target: str, **options: Any) -> nn.Module:
    """Return one of torchvision's models, without weights.

    A segmentation model returns its main scores as a tensor, and not in a dictionary, so that
    ``cross-entropy`` fits; names and shapes of its parameters are torchvision's.

    Args:
        target: a name that ``torchvision.models.list_models()`` has, but for detection models; or
            a class of ``torchvision.models``, ``VisionTransformer`` say, for other sizes.
        **options: keyword arguments of torchvision's builder or class, ``num_classes=10`` say.

    Raises:
        AdapterError: If the target or an option is unknown, or asks for downloaded weights.

    Example:
        >>> model = build_model("resnet18", num_classes=10)
        >>> model.fc.out_features
        10
    """
    builder = _builder(target)
    _refuse_weights(options)
    try:
        model = builder(**_quiet(builder, options), **_resolved(builder, options))
    except (TypeError, ValueError, AssertionError, AttributeError) as error:
        told = ", ".join(f"{key}={value}" for key, value in options.items())
        raise AdapterError(
            f"torchvision's {target} refuses these options",
            seen=told or "(none)",
            hint=str(error).splitlines()[0] if str(error) else "see torchvision's documentation",
        ) from error
    if builder.__module__.startswith("torchvision.models.segmentation"):
        model.register_forward_hook(_take_scores)
    return model


def _builder(target: str) -> Callable[..., nn.Module]:
    names = torchvision.models.list_models()
    kind = getattr(torchvision.models, target, None) if target.isidentifier() else None
    if inspect.isclass(kind) and issubclass(kind, nn.Module):
        return kind
    if target not in names:
        close = difflib.get_close_matches(target.lower(), names, n=3)
        raise AdapterError(
            f"torchvision {torchvision.__version__} has no model {target!r}",
            seen=target,
            hint=", ".join(close) or "torchvision.models.list_models() names them",
        )
    builder: Callable[..., nn.Module] = torchvision.models.get_model_builder(target)
    if builder.__module__.startswith(DETECTION):
        raise AdapterError(
            "detection models are not opened by name",
            seen=target,
            hint="--model FILE.py:FACTORY, a model that returns the sum of its losses",
        )
    return builder


def _refuse_weights(options: Mapping[str, Any]) -> None:
    for name in WEIGHTS:
        if name in options:
            raise AdapterError(
                "no weights are downloaded",
                seen=f"{name}={options[name]}",
                hint="the weights come from the checkpoint: leave the option out",
            )


def _resolved(builder: Callable[..., nn.Module], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a class with the blocks that they name: ``block=BasicBlock``."""
    if not inspect.isclass(builder):
        return dict(options)
    named = {
        name: kind
        for name, kind in vars(importlib.import_module(builder.__module__)).items()
        if inspect.isclass(kind) and issubclass(kind, nn.Module)
    }
    return {
        name: named.get(value, value) if isinstance(value, str) else value
        for name, value in options.items()
    }


def _quiet(builder: Callable[..., nn.Module], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what keeps a builder from downloading a backbone, and from warning."""
    if inspect.isclass(builder):
        return {}
    known = inspect.signature(builder).parameters
    quiet: dict[str, Any] = {"weights": None}
    if "weights_backbone" in known:
        quiet["weights_backbone"] = None
    if _warns_without_init_weights(builder) and "init_weights" not in options:
        quiet["init_weights"] = True  # what it does when it warns
    return quiet


def _warns_without_init_weights(builder: Callable[..., nn.Module]) -> bool:
    return builder.__name__ in ("googlenet", "inception_v3")


def _take_scores(module: nn.Module, inputs: Any, output: Any) -> Any:
    del module, inputs
    return output["out"] if isinstance(output, Mapping) else output
