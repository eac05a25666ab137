"""Whether a model's own loss shifts its labels: measured, as names do not tell."""

from __future__ import annotations

import torch
from torch import nn

from landscape_cli import randomness
from landscape_cli.losses import IGNORED
from landscape_huggingface.library import MODELS

TOKEN = 1
"""Some token; 0 is the padding of many models."""


def measure_shift(model: nn.Module) -> bool | None:
    """Return whether the label at a position is compared with the output before it.

    The loss is asked for with one label, at the first of two positions. Where labels are
    shifted nothing is before it, so that the mean is over no token, and not finite or 0.

    Args:
        model: of transformers, on the CPU; comes back as it was.

    Returns:
        None for models that are not causal language models, or do not take two tokens.
    """
    if not is_causal(model):
        return None
    tokens = torch.full((1, 2), TOKEN)
    labels = torch.tensor([[TOKEN, IGNORED]])
    training = {module: module.training for module in model.modules()}
    try:
        with randomness.preserved(), torch.no_grad():
            loss = model.eval()(input_ids=tokens, labels=labels).loss
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
        return None  # it takes more than tokens: its name decides
    finally:
        for module, flag in training.items():
            module.training = flag
    return not bool(torch.isfinite(loss) & (loss != 0))


def is_causal(model: nn.Module) -> bool:
    """Whether a model is of a class that transformers lists as a causal language model."""
    names: set[str] = set()
    for name in MODELS.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        names.update([name] if isinstance(name, str) else name)
    return type(model).__name__ in names
