"""A small GPT."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from landscape_cli.errors import AdapterError
from sample_models.architectures.activations import make_activation
from sample_models.architectures.style import Style
from sample_models.options import require_at_least

Attention = Literal["sdpa", "plain"]


class GPT(nn.Module):
    """A causal transformer on tokens, with learned positions and a tied output.

    Norms act on every token's features; those over the batch take all tokens of the batch as
    samples. ``norm_position=before`` normalises the input of attention and of the dense part,
    ``after`` the sum behind each.

    Args:
        layers: number of blocks.
        heads: attention heads; they divide the width.
        width: features of a token.
        context: longest sequence.
        vocabulary: number of tokens.
        attention: ``sdpa`` (torch's fused function) or ``plain`` (matrix products, softmax).
        tied: whether the output layer's weight is the token embedding.
        style: normalisation, activation, initialisation; ``layer``, ``gelu`` and ``normal``
            unless it says otherwise.

    Raises:
        AdapterError: If the heads do not divide the width.

    Reference:
        Radford et al. (2019), GPT-2, without dropout.
    """

    default_style = Style(norm="layer", activation="gelu", init="normal")

    def __init__(
        self,
        layers: int = 2,
        *,
        heads: int = 4,
        width: int = 64,
        context: int = 64,
        vocabulary: int = 256,
        attention: Attention = "sdpa",
        tied: bool = True,
        style: Style = default_style,
    ) -> None:
        super().__init__()
        require_at_least(1, layers=layers, heads=heads, width=width)
        require_at_least(1, context=context, vocabulary=vocabulary)
        if width % heads:
            raise AdapterError(
                "the heads do not divide the width",
                seen=f"heads={heads}, width={width}",
                hint="a width that is a multiple of the heads",
            )
        self.context = context
        self.tokens = style.initialised(nn.Embedding(vocabulary, width))
        self.positions = style.initialised(nn.Embedding(context, width))
        blocks = [Block(width, heads, attention=attention, style=style) for _ in range(layers)]
        self.blocks = nn.Sequential(*blocks)
        self.norm = TokenNorm(width, style)
        self.output = style.initialised(nn.Linear(width, vocabulary, bias=False))
        if tied:
            self.output.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of the next tokens, shape (N, T, vocabulary).

        Args:
            tokens: shape (N, T), whole numbers, T up to the context.
        """
        length = tokens.shape[1]
        if length > self.context:
            raise ValueError(f"{length} tokens for a context of {self.context}")
        places = torch.arange(length, device=tokens.device)
        features = self.blocks(self.tokens(tokens) + self.positions(places))
        scores: Tensor = self.output(self.norm(features))
        return scores


class Block(nn.Module):
    """Attention, then two dense layers, each added to its input."""

    def __init__(self, width: int, heads: int, *, attention: Attention, style: Style) -> None:
        super().__init__()
        self.norm1 = TokenNorm(width, style)
        self.attention = SelfAttention(width, heads, kind=attention, style=style)
        self.norm2 = TokenNorm(width, style)
        self.widen = style.hidden(nn.Linear(width, 4 * width))
        self.activation = make_activation(style.activation)
        self.narrow = style.hidden(nn.Linear(4 * width, width))
        self.norm_first = style.norm_position == "before"

    def forward(self, features: Tensor) -> Tensor:
        """Return the features, shape (N, T, width)."""
        if self.norm_first:
            features = features + self.attention(self.norm1(features))
            return features + self._dense(self.norm2(features))
        features = self.norm1(features + self.attention(features))
        normalised: Tensor = self.norm2(features + self._dense(features))
        return normalised

    def _dense(self, features: Tensor) -> Tensor:
        outputs: Tensor = self.narrow(self.activation(self.widen(features)))
        return outputs


class SelfAttention(nn.Module):
    """Causal attention over the tokens of a sequence."""

    def __init__(self, width: int, heads: int, *, kind: Attention, style: Style) -> None:
        super().__init__()
        self.heads = heads
        self.kind = kind
        self.project = style.hidden(nn.Linear(width, 3 * width))
        self.merge = style.hidden(nn.Linear(width, width))

    def forward(self, features: Tensor) -> Tensor:
        """Return the mixed features, shape (N, T, width)."""
        count, length, width = features.shape
        parts = self.project(features).reshape(count, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind()
        attend = attend_plainly if self.kind == "plain" else _attend_fused
        mixed = attend(query, key, value).transpose(1, 2).reshape(count, length, width)
        merged: Tensor = self.merge(mixed)
        return merged


def attend_plainly(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return softmax(QKᵀ/√d, later tokens left out)·V, shape (N, heads, T, d)."""
    length = query.shape[-2]
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    later = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    return scores.masked_fill(later, -math.inf).softmax(-1) @ value


def _attend_fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


class TokenNorm(nn.Module):
    """A norm over the features of every token, the tokens of the batch as samples."""

    def __init__(self, width: int, style: Style) -> None:
        super().__init__()
        self.norm = style.norm_layer(width, 0)

    def forward(self, features: Tensor) -> Tensor:
        """Return the normalised features, shape (N, T, width)."""
        normalised: Tensor = self.norm(features.flatten(0, 1))
        return normalised.reshape(features.shape)
