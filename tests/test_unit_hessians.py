from __future__ import annotations

import cases
import pytest
import torch
from sites import Raws, surveyed
from torch import nn

from landscape_cli.unit_hessians import OutputCurvature

NETS = {
    "dense": (cases.Tanh3, "enter", lambda: cases.vector_data(5), False),
    "convolutional": (cases.SmallConvNet, "second", lambda: cases.image_data(4, 6), False),
    "in front of batch norm": (
        cases.SmallBatchNormNet,
        "conv",
        lambda: cases.image_data(5, 4),
        True,
    ),
    "behind batch norm": (cases.SmallBatchNormNet, "leave", lambda: cases.image_data(5, 4), False),
}


@pytest.mark.parametrize("net", NETS)
def test_examples_interact_only_where_batch_statistics_follow(net: str) -> None:
    build, layer, data, interacts = NETS[net]
    model = build()
    with surveyed(model, data()) as site:
        curvature = OutputCurvature(site.objective, 0, model.get_submodule(layer))
        assert curvature.interacts is interacts


@pytest.mark.parametrize("net", NETS)
def test_products_one_by_one_together_and_in_blocks_are_the_same(net: str) -> None:
    build, layer, data, interacts = NETS[net]
    model = build()
    with surveyed(model, data()) as site:
        curvature = OutputCurvature(site.objective, 0, model.get_submodule(layer))
        assert not curvature.batched
        units = [0, 2]
        alone = curvature.products(units, curvature.identity())
        curvature.batched = True
        together = curvature.products(units, curvature.identity())
        assert curvature.batched
        torch.testing.assert_close(alone, together, rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(alone, alone.transpose(1, 2), rtol=1e-9, atol=1e-14)
        if not interacts:
            for whole, blocks in zip(alone, curvature.blocks(units), strict=True):
                torch.testing.assert_close(whole, torch.block_diag(*blocks))


def test_a_loss_without_curvature_gives_zeros() -> None:
    model = nn.Sequential(nn.Linear(4, 3)).double()
    x, _ = cases.vector_data(6)[0]
    raws: Raws = [(x, torch.zeros(6, 3, dtype=torch.float64))]
    with surveyed(model, raws, "l1") as site:
        curvature = OutputCurvature(site.objective, 0, model[0])
        assert not curvature.interacts
        assert (curvature.products([1], curvature.identity()) == 0).all()
