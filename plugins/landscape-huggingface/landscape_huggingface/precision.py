"""transformers' language-model losses in float64, where the model is."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from landscape_cli.losses import IGNORED
from landscape_huggingface.labels import is_causal
from landscape_huggingface.library import LOSSES


def keep_precision(model: nn.Module) -> None:
    """Let a model in float64 compute its loss in float64: transformers rounds it to float32.

    Models whose loss is not one of the two below are left alone, and so are other types. A
    causal model without a type of loss has the first, and would warn of it.
    """
    kind = getattr(model, "loss_type", "")
    if kind == "ForCausalLM" or (kind is None and is_causal(model)):
        model.loss_function = causal_loss  # type: ignore[assignment]
    elif kind == "ForMaskedLM":
        model.loss_function = masked_loss  # type: ignore[assignment]


def causal_loss(logits: Tensor, labels: Tensor, *args: Any, **keywords: Any) -> Tensor:
    """Stand for ``ForCausalLMLoss``: scores at a position against the label at the next."""
    if logits.dtype is not torch.float64:
        return LOSSES.ForCausalLMLoss(logits, labels, *args, **keywords)  # type: ignore[no-any-return]
    shifted = keywords.get("shift_labels")
    if shifted is None:
        shifted = F.pad(labels, (0, 1), value=IGNORED)[..., 1:]
    return _entropy(logits, shifted, keywords.get("num_items_in_batch"))


def masked_loss(logits: Tensor, labels: Tensor, *args: Any, **keywords: Any) -> Tensor:
    """Stand for ``ForMaskedLMLoss``: scores at a position against the label there."""
    if logits.dtype is not torch.float64:
        return LOSSES.ForMaskedLMLoss(logits, labels, *args, **keywords)  # type: ignore[no-any-return]
    return _entropy(logits, labels, keywords.get("num_items_in_batch"))


def _entropy(logits: Tensor, labels: Tensor, count: Any) -> Tensor:
    flat, wanted = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1).to(logits.device)
    if count is None:
        return F.cross_entropy(flat, wanted, ignore_index=IGNORED)
    total: Tensor = F.cross_entropy(flat, wanted, ignore_index=IGNORED, reduction="sum") / count
    return total
