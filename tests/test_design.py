from __future__ import annotations

import pytest
import torch
from torch import nn

from landscape_cli.design import by_unit, design_matrix, group_of, unit_count, weight_count

LAYERS = {
    "dense": (nn.Linear(5, 3), (4, 5)),
    "dense on tokens": (nn.Linear(5, 3), (4, 7, 5)),
    "1d": (nn.Conv1d(4, 6, 3, stride=2, padding=1), (2, 4, 9)),
    "2d": (nn.Conv2d(3, 4, (3, 5), padding="same"), (2, 3, 6, 5)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2, dilation=2), (3, 4, 8, 7)),
    "reflected": (nn.Conv2d(2, 3, 3, padding=2, padding_mode="reflect"), (2, 2, 6, 6)),
    "circular": (nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), (2, 2, 6)),
    "3d": (nn.Conv3d(2, 2, 2, stride=(1, 2, 1), bias=False), (2, 2, 4, 4, 3)),
}


@pytest.mark.parametrize("case", LAYERS)
def test_rows_times_weights_plus_bias_are_the_layers_outputs(case: str) -> None:
    layer, shape = LAYERS[case]
    layer = layer.double()
    torch.manual_seed(0)
    inputs = torch.randn(shape, dtype=torch.float64)
    outputs = by_unit(layer(inputs), layer)
    assert outputs.shape[2] == unit_count(layer)
    for unit in range(unit_count(layer)):
        rows = design_matrix(layer, inputs, group_of(layer, unit))
        assert rows.shape == (*outputs.shape[:2], weight_count(layer))
        bias = 0 if layer.bias is None else layer.bias[unit]
        expected = rows @ layer.weight[unit].flatten() + bias
        torch.testing.assert_close(expected, outputs[..., unit], rtol=1e-12, atol=1e-12)
