"""The model adapter ``hf``: ``--model hf:FOLDER`` or ``--model 'hf:gpt2?n_layer=2'``."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from torch import nn

from landscape_cli.errors import AdapterError
from landscape_huggingface.labels import measure_shift
from landscape_huggingface.library import CONFIGS, first_line, offline, transformers
from landscape_huggingface.precision import keep_precision
from landscape_huggingface.tasks import choose_class

REFUSED = ("trust_remote_code", "code_revision", "revision", "token", "cache_dir", "dtype")
"""Options of ``from_pretrained`` that are about downloading, or about running others' code."""

SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
"""What some types of config have and others take."""


def build_model(
    target: str,
    *,
    task: str | None = None,
    attn_implementation: str | None = None,
    **options: Any,
) -> nn.Module:
    """Return a transformers model with random weights, in float32.

    The model's attribute ``shifts_labels`` says whether its own loss compares the output at a
    position with the label at the next one, so that ``--loss model`` weighs batches by the
    tokens that count.

    Args:
        target: a folder with a ``config.json`` or that file, the name of a model in the local
            cache, or a type of model such as ``gpt2``, ``llama``, ``bert`` or ``t5``.
        task: ``causal-lm``, ``masked-lm``, ``seq2seq-lm``, … or the name of a class; what the
            config was saved as, or what its type is usually used for, if it is left out.
        attn_implementation: ``eager``, ``sdpa``, …; transformers' choice if it is left out.
        **options: attributes of the config to set: ``n_layer=2``, ``num_labels=3``, ….

    Raises:
        AdapterError: If there is no such config, task or option, or it needs code from
            elsewhere.
    """
    _refuse(options)
    with offline():
        config = _config(target, options)
        if getattr(config, "use_cache", False):
            config.use_cache = False  # keys and values of the past are for generation
        _name_first_token(config)
        kind = choose_class(config, task)
        model = _build(kind, config, target, attn_implementation)
    keep_precision(model)
    shift = measure_shift(model)
    if shift is not None:
        setattr(model, "shifts_labels", shift)  # noqa: B010  nn.Module declares no such thing
    return model


def _refuse(options: dict[str, Any]) -> None:
    for name in REFUSED:
        if name in options:
            raise AdapterError(
                "nothing is downloaded, and no code of others is run",
                seen=f"{name}={options[name]}",
                hint="--device, --dtype and the checkpoint say the rest: leave the option out",
            )


def _config(target: str, options: dict[str, Any]) -> Any:
    path = Path(target).expanduser()
    if not path.exists() and target in CONFIGS.CONFIG_MAPPING_NAMES:
        return _of_type(target, options)
    folder = path.parent if path.is_file() else path
    try:
        config = transformers.AutoConfig.from_pretrained(
            str(folder) if path.exists() else target,
            local_files_only=True,
            trust_remote_code=False,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AdapterError(
            "there is no config of a transformers model there",
            seen=f"{target}: {first_line(error)}",
            hint=_advice(target),
        ) from error
    _check_names(config, options)
    for name, value in options.items():
        setattr(config, name, value)
    return config


def _of_type(kind: str, options: dict[str, Any]) -> Any:
    made = CONFIGS.CONFIG_MAPPING[kind]
    try:
        _check_names(made(), options)
        return made(**options)
    except (TypeError, ValueError) as error:
        raise _refusal(f"a config of type {kind!r}", options, error) from error


def _name_first_token(config: Any) -> None:
    """Say what a decoder's input starts with, where an encoder-decoder's config does not."""
    if not getattr(config, "is_encoder_decoder", False):
        return
    if getattr(config, "decoder_start_token_id", None) is None:
        first = getattr(config, "bos_token_id", None)
        config.decoder_start_token_id = config.pad_token_id if first is None else first


def _check_names(config: Any, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if not hasattr(config, name) and name not in SPECIAL_TOKENS:
            known = [key for key in config.to_dict() if not key.startswith("_")]
            close = difflib.get_close_matches(name, known, n=3) or known[:8]
            raise AdapterError(
                f"a config of type {config.model_type!r} has no option {name!r}",
                seen=f"{name}={value}",
                hint=", ".join(close),
            )


def _advice(target: str) -> str:
    close = difflib.get_close_matches(target, CONFIGS.CONFIG_MAPPING_NAMES, n=3)
    return "a folder with config.json, or a type: " + ", ".join(close or ["gpt2", "bert", "t5"])


def _build(kind: Any, config: Any, target: str, attention: str | None) -> nn.Module:
    chosen = {} if attention is None else {"attn_implementation": attention}
    try:
        if hasattr(kind, "_from_config"):
            model = kind._from_config(config, **chosen)  # noqa: SLF001  no public way for a class
        else:
            model = kind.from_config(config, trust_remote_code=False, **chosen)
    except (ValueError, TypeError, AttributeError, ImportError, RuntimeError) as error:
        raise _refusal(f"{kind.__name__} of {target}", chosen, error) from error
    built: nn.Module = model.float()
    return built


def _refusal(what: str, options: dict[str, Any], error: BaseException) -> AdapterError:
    told = ", ".join(f"{key}={value}" for key, value in options.items())
    return AdapterError(
        f"{what} cannot be built",
        seen=f"{first_line(error)}{' with ' + told if told else ''}",
        hint="check the config, the options and task=…",
    )
