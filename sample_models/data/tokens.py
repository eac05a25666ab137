"""Synthetic text: sequences of a random Markov chain."""

from __future__ import annotations

import torch

from sample_models.data.samples import Samples
from sample_models.options import require_at_least, require_seed


def make_tokens(
    samples: int = 256,
    *,
    context: int = 64,
    vocabulary: int = 256,
    successors: int = 4,
    seed: int = 0,
) -> Samples:
    """Return sequences and, shifted by one, what follows each token.

    Every token has `successors` tokens that may follow it, equally likely, so that no model
    does better than a loss of log(successors) per token.

    Args:
        samples: number of sequences N.
        context: tokens T of one.
        vocabulary: number of tokens.
        successors: number of tokens that may follow a token.
        seed: decides everything; tensors are int64, shape (N, T).
    """
    require_at_least(1, samples=samples, context=context, vocabulary=vocabulary)
    require_at_least(1, successors=successors)
    require_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    count = min(successors, vocabulary)
    ranks = torch.rand(vocabulary, vocabulary, generator=generator)
    following = ranks.topk(count, dim=1).indices
    tokens = [torch.randint(vocabulary, (samples,), generator=generator)]
    for _ in range(context):
        chosen = torch.randint(count, (samples,), generator=generator)
        tokens.append(following[tokens[-1], chosen])
    sequences = torch.stack(tokens, dim=1)
    return Samples(sequences[:, :-1], sequences[:, 1:])
