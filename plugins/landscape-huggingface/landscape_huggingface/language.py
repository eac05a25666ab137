"""Texts as batches of tokens with the labels of a language task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from landscape_cli import randomness
from landscape_cli.losses import IGNORED

Sample = dict[str, Any]
Encode = Callable[[int], Sample]


class TokenSamples(Dataset[Sample]):
    """Samples of tokens, encoded when they are asked for, padded on the right batch by batch.

    Args:
        count: number of samples.
        encode: from a position to lists of integers by name, ``labels`` a list or a number.
        pad_id: what ``input_ids`` are padded with; other names with 0, ``labels`` with −100.
    """

    def __init__(self, count: int, encode: Encode, *, pad_id: int = 0) -> None:
        self._count = count
        self._encode = encode
        self._padding = {"input_ids": pad_id, "labels": IGNORED}

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Sample:
        values = self._encode(range(self._count)[index])
        return {name: torch.as_tensor(value) for name, value in values.items()}

    def collate_fn(self, samples: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return tensors of shape (samples, longest), or (samples,) for single numbers."""
        return {
            name: self._stack(name, [sample[name] for sample in samples]) for name in samples[0]
        }

    def _stack(self, name: str, values: list[Tensor]) -> Tensor:
        if values[0].dim() == 0:
            return torch.stack(values)
        padding = self._padding.get(name, 0)
        return torch.nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=padding)


@dataclass(frozen=True)
class Causal:
    """Every token is a label; the model shifts them."""

    tokenizer: Any
    texts: Sequence[str]
    max_length: int

    def __call__(self, index: int) -> Sample:
        """Return one text, cut to ``max_length`` tokens."""
        encoded = _encode(self.tokenizer, self.texts[index], self.max_length)
        return {**encoded, "labels": list(encoded["input_ids"])}


@dataclass(frozen=True)
class Packed:
    """Every token of blocks that were cut from all texts, put one after another."""

    blocks: Tensor

    def __call__(self, index: int) -> Sample:
        """Return one block."""
        block = self.blocks[index].long()
        return {
            "input_ids": block,
            "attention_mask": torch.ones_like(block),
            "labels": block.clone(),
        }


def pack(tokenizer: Any, texts: Sequence[str], length: int) -> Tensor:
    """Return blocks of all tokens, the end-of-text token after each text, the rest left out.

    Returns:
        int32, shape (blocks, length).
    """
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    pieces: list[Tensor] = []
    for start in range(0, len(texts), 1000):
        several = list(texts[start : start + 1000])
        encoded = tokenizer(several, add_special_tokens=False, verbose=False)["input_ids"]
        joined = [token for tokens in encoded for token in (*tokens, *end)]
        pieces.append(torch.tensor(joined, dtype=torch.int32))
    whole = torch.cat(pieces)
    return whole[: len(whole) // length * length].view(-1, length)


@dataclass(frozen=True)
class Masked:
    """Some tokens are labels, most of them hidden: the same ones every time a sample is read.

    Of the tokens that are not special a share `rate` is chosen; of those 80 % are replaced by the
    mask, 10 % by any token, and 10 % are left (Devlin et al. 2019, §3.1).
    """

    tokenizer: Any
    texts: Sequence[str]
    max_length: int
    rate: float = 0.15
    seed: int = 0

    def __call__(self, index: int) -> Sample:
        """Return one text with its masks; at least one token is chosen where there is any."""
        encoded = _encode(self.tokenizer, self.texts[index], self.max_length, special=True)
        ordinary = torch.tensor(encoded.pop("special_tokens_mask")) == 0
        tokens = torch.tensor(encoded["input_ids"])
        seed = randomness.derived_seed(self.seed, "masks", index)
        generator = torch.Generator().manual_seed(seed)
        draw = torch.rand(len(tokens), generator=generator).masked_fill(~ordinary, 2.0)
        threshold = max(self.rate, float(draw.min())) if bool(ordinary.any()) else -1.0
        chosen = draw <= threshold
        kind = torch.rand(len(tokens), generator=generator)
        others = torch.randint(len(self.tokenizer), (len(tokens),), generator=generator)
        hidden = torch.where(kind < 0.8, self.tokenizer.mask_token_id, others)
        shown = torch.where(chosen & (kind < 0.9), hidden, tokens)
        labels = tokens.masked_fill(~chosen, IGNORED)
        return {**encoded, "input_ids": shown, "labels": labels}


@dataclass(frozen=True)
class Sequences:
    """A text and the text that answers it."""

    tokenizer: Any
    texts: Sequence[str]
    answers: Sequence[str]
    max_length: int

    def __call__(self, index: int) -> Sample:
        """Return both texts as tokens, each cut to ``max_length``."""
        encoded = _encode(self.tokenizer, self.texts[index], self.max_length)
        answer = self.tokenizer(
            text_target=self.answers[index], truncation=True, max_length=self.max_length
        )
        return {**encoded, "labels": answer["input_ids"]}


@dataclass(frozen=True)
class Classified:
    """A text and its class, or its number."""

    tokenizer: Any
    texts: Sequence[str]
    labels: Sequence[float]
    max_length: int

    def __call__(self, index: int) -> Sample:
        """Return the text as tokens, and the label as it is."""
        encoded = _encode(self.tokenizer, self.texts[index], self.max_length)
        return {**encoded, "labels": self.labels[index]}


def _encode(tokenizer: Any, text: str, length: int, *, special: bool = False) -> Sample:
    return dict(
        tokenizer(text, truncation=True, max_length=length, return_special_tokens_mask=special)
    )
