"""The GPT: known size, causality, and two ways of attention that agree."""

import math

import pytest
import torch
from torch import nn

from landscape_cli.errors import AdapterError
from sample_models.architectures import GPT, Style

SMALL = {"layers": 2, "heads": 2, "width": 8, "context": 6, "vocabulary": 11}


def test_the_published_size_of_gpt_2():
    with torch.device("meta"):
        model = GPT(12, heads=12, width=768, context=1024, vocabulary=50257)
    assert sum(p.numel() for p in model.parameters()) == 124_439_808


def test_both_ways_of_attention_give_the_same():
    plain = GPT(**SMALL, attention="plain").double()
    fused = GPT(**SMALL, attention="sdpa").double()
    fused.load_state_dict(plain.state_dict())
    tokens = torch.randint(11, (3, 6))
    assert torch.allclose(plain(tokens), fused(tokens), rtol=1e-10, atol=1e-14)


def test_attention_is_the_softmax_over_earlier_tokens():
    model = GPT(**SMALL).double()
    layer = model.blocks[0].attention
    features = torch.randn(2, 5, 8, dtype=torch.float64)
    query, key, value = layer.project(features).split(8, dim=-1)
    expected = torch.zeros_like(features)
    for sample in range(2):
        for head in (slice(0, 4), slice(4, 8)):
            for token in range(5):
                earlier = key[sample, : token + 1, head] @ query[sample, token, head]
                weights = (earlier / math.sqrt(4)).exp()
                mixed = weights / weights.sum() @ value[sample, : token + 1, head]
                expected[sample, token, head] = mixed
    assert torch.allclose(layer(features), layer.merge(expected), rtol=1e-11)


@pytest.mark.parametrize("norm", ["none", "layer", "group", "weight"])
@pytest.mark.parametrize("norm_position", ["before", "after"])
def test_no_score_depends_on_a_later_token(norm, norm_position):
    style = Style(norm=norm, norm_position=norm_position, activation="gelu")
    model = GPT(**SMALL, style=style).double()
    tokens = torch.randint(11, (3, 6))
    changed = tokens.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 11
    first, second = model(tokens), model(changed)
    assert torch.allclose(first[:, :4], second[:, :4], rtol=1e-12)
    assert not torch.allclose(first[:, 4:], second[:, 4:], rtol=1e-3)


def test_its_layer_norm_is_torchs_over_the_features():
    model = GPT(**SMALL)
    features = torch.randn(2, 5, 8)
    assert torch.allclose(model.norm(features), nn.LayerNorm(8)(features), atol=1e-6)


def test_batch_norm_takes_all_tokens_as_samples():
    model = GPT(**SMALL, style=Style(norm="batch")).double()
    features = torch.randn(2, 5, 8, dtype=torch.float64)
    flat = features.reshape(10, 8)
    expected = (flat - flat.mean(0)) / (flat.var(0, correction=0) + 1e-5).sqrt()
    assert torch.allclose(model.norm(features).reshape(10, 8), expected, rtol=1e-11)


def test_the_output_is_tied_to_the_embedding_unless_told():
    tied, free = GPT(**SMALL), GPT(**SMALL, tied=False)
    assert tied.output.weight is tied.tokens.weight
    assert free.output.weight is not free.tokens.weight


def test_a_width_that_the_heads_do_not_divide_is_refused():
    with pytest.raises(AdapterError, match="the heads do not divide the width"):
        GPT(heads=3, width=8)


def test_more_tokens_than_the_context_are_refused():
    with pytest.raises(ValueError, match="7 tokens for a context of 6"):
        GPT(**SMALL)(torch.zeros(1, 7, dtype=torch.long))
