from __future__ import annotations

import cases
import torch
from sites import surveyed
from torch import Tensor, nn

from landscape_cli.layers import OutputTap, affine_layers, parameter_layers


def test_every_trainable_tensor_that_is_reached_belongs_to_one_layer() -> None:
    model = cases.Awkward().double()
    with surveyed(model, [cases.awkward_data().tensors]) as site:
        layers = parameter_layers(site.objective)
        names = site.parameters.names
    owned = [names[position] for layer in layers for position in layer.positions]
    assert sorted(owned) == sorted(name for name in names if name != "unused")
    assert {layer.name: [names[i] for i in layer.positions] for layer in layers}["first"] == [
        "first.weight",
        "first.bias",
    ]


def test_the_tied_twin_has_what_is_left() -> None:
    with surveyed(cases.Awkward().double(), [cases.awkward_data().tensors]) as site:
        layers = {layer.name: layer for layer in parameter_layers(site.objective)}
        names = site.parameters.names
    assert [names[i] for i in layers["again"].positions] == ["again.bias"]


def test_the_tied_tensor_goes_to_the_module_that_runs_first_not_to_the_one_defined_first() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.late = nn.Linear(4, 4)
            self.early = nn.Linear(4, 4)
            self.early.weight = self.late.weight
            cases.fill_randomly(self, 0)

        def forward(self, x: Tensor) -> Tensor:
            return self.late(torch.tanh(self.early(x)))[:, :3]

    with surveyed(Tied(), cases.vector_data(6)) as site:
        layers = {layer.name: layer.positions for layer in parameter_layers(site.objective)}
        names = site.parameters.names
    assert list(layers) == ["early", "late"]
    assert [names[i] for i in layers["early"]] == ["late.weight", "early.bias"]


def test_a_tap_takes_outputs_before_an_operation_in_place_changes_them() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True)).double()
    x, y = cases.vector_data(6)[0]
    taken: list[Tensor] = []
    tap = OutputTap([model[0]], lambda batch, outputs, slopes: taken.extend(outputs[0]))
    with surveyed(model, [(x, y)]) as site:
        site.objective.value_and_gradient(tap)
    torch.testing.assert_close(taken[0], model[0](x).detach())
    assert (taken[0] < 0).any()


def test_layers_without_a_history_have_gradients_all_the_same() -> None:
    model = cases.Tanh3()
    model.enter.requires_grad_(False)
    slopes: list[Tensor | None] = []
    tap = OutputTap([model.enter], lambda batch, outputs, found: slopes.extend(found[0]))
    with surveyed(model, cases.vector_data(6)) as site:
        site.objective.value_and_gradient(tap)
    assert slopes[0] is not None
    assert slopes[0].abs().sum() > 0


def test_transposed_convolutions_are_layers_only_where_they_are_asked_for() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ConvTranspose2d(2, 1, 3), nn.BatchNorm2d(1))
    assert list(affine_layers(model)) == ["0", "1"]
    assert list(affine_layers(model, transposed=False)) == ["0"]
