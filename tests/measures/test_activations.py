from __future__ import annotations

import cases
import numpy as np
import pytest
import torch
from sites import Raws, surveyed, taken
from torch import Tensor, nn

from landscape_cli.errors import SpecError
from landscape_cli.measures.activations import Activations, bin_edges

NETS = {
    "dense": (cases.Tanh3, lambda: cases.vector_data(11)),
    "convolutional": (cases.SmallConvNet, lambda: cases.image_data(7, 6)),
    "batch norm": (
        cases.SmallBatchNormNet,
        lambda: cases.image_data(9, 4) + cases.image_data(5, 4, seed=8),
    ),
}


def inputs_of(model: nn.Module, raws: Raws) -> dict[str, np.ndarray]:
    """Return every leaf layer's inputs, (features, …), all batches one after the other."""
    found: dict[str, list[Tensor]] = {}
    handles = []
    for name, module in model.named_children():
        if any(True for _ in module.parameters()):
            keep = found.setdefault(name, [])
            handles.append(
                module.register_forward_pre_hook(
                    lambda _, args, keep=keep: keep.append(args[0].detach().clone())
                )
            )
    with torch.no_grad():
        for x, _ in raws:
            model(x)
    for handle in handles:
        handle.remove()
    return {
        name: torch.cat(parts).movedim(1, 0).flatten(1).double().numpy()
        for name, parts in found.items()
    }


@pytest.mark.parametrize("net", NETS)
def test_moments_and_histograms_are_those_of_the_inputs(net: str) -> None:
    build, data = NETS[net]
    raws = data()
    expected = inputs_of(build(), raws)
    with surveyed(build(), raws) as site:
        found = taken(Activations(units=3), site)
    assert found["layer"].tolist() == list(expected)
    edges = found["edge"]
    for layer, values in enumerate(expected.values()):
        assert found["mean"][layer] == pytest.approx(values.mean(), abs=1e-12)
        assert found["variance"][layer] == pytest.approx(values.var())
        assert found["minimum"][layer] == values.min()
        assert found["maximum"][layer] == values.max()
        np.testing.assert_array_equal(found["histogram"][layer], np.histogram(values, edges)[0])
        assert found["histogram"][layer].sum() == values.size
        for unit, index in enumerate(found["unit_index"][layer]):
            if index < 0:
                assert np.isnan(found["unit_mean"][layer, unit])
                assert found["unit_histogram"][layer, unit].sum() == 0
                continue
            assert found["unit_mean"][layer, unit] == pytest.approx(values[index].mean())
            assert found["unit_variance"][layer, unit] == pytest.approx(values[index].var())
            counts = np.histogram(values[index], edges)[0]
            np.testing.assert_array_equal(found["unit_histogram"][layer, unit], counts)
    assert (found["outside"] == 0).all()
    assert (found["not_finite"] == 0).all()


def test_batch_norm_normalises_what_it_hands_on() -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4, affine=False, eps=1e-30)
            self.leave = nn.Linear(4, 3)
            self.double()

        def forward(self, x: Tensor) -> Tensor:
            return self.leave(self.norm(5 + 2 * x))

    with surveyed(Normed(), cases.vector_data(20)) as site:
        found = taken(Activations(), site)
    assert found["layer"].tolist() == ["norm", "leave"]
    np.testing.assert_allclose(found["mean"][1], 0, atol=1e-12)
    np.testing.assert_allclose(found["variance"][1], 1)
    np.testing.assert_allclose(found["unit_mean"][1], 0, atol=1e-12)
    np.testing.assert_allclose(found["unit_variance"][1], 1)


def test_edges_do_not_depend_on_the_activations_and_are_narrow_around_zero() -> None:
    with surveyed(cases.Tanh3(), cases.vector_data(9)) as site:
        small = taken(Activations(), site)
    x, y = cases.vector_data(9)[0]
    with surveyed(cases.Tanh3(), [(100 * x, y)]) as site:
        large = taken(Activations(), site)
    np.testing.assert_array_equal(small["edge"], large["edge"])
    edges = bin_edges(256)
    np.testing.assert_array_equal(edges, -edges[::-1])
    assert (np.diff(edges) > 0).all()
    widths = np.diff(edges)[np.abs(edges[:-1]) < 1]
    assert widths.max() < 0.13
    assert edges[-1] == pytest.approx(1e4)


def test_what_lies_beyond_the_bins_or_is_not_finite_is_counted() -> None:
    x, y = cases.vector_data(9)[0]
    x = x.clone()
    x[0, 0], x[1, 1], x[2, 2] = 1e6, np.inf, np.nan
    with surveyed(cases.Tanh3(), [(x, y)]) as site:
        found = taken(Activations(), site)
    assert found["outside"][0] == 1
    assert found["not_finite"][0] == 2
    assert found["histogram"][0].sum() == x.numel() - 3
    assert np.isnan(found["mean"][0])


def test_followed_units_are_the_same_at_every_checkpoint_and_differ_by_seed() -> None:
    chosen = []
    for model_seed, seed in ((0, 0), (7, 0), (0, 1)):
        model = cases.SmallBatchNormNet(seed=model_seed)
        with surveyed(model, cases.image_data(9, 4), seed=seed) as site:
            chosen.append(taken(Activations(), site)["unit_index"].tolist())
    assert chosen[0] == chosen[1]
    assert chosen[0] != chosen[2]


def test_impossible_options_are_wrong_usage() -> None:
    with pytest.raises(SpecError, match="bins"):
        Activations(bins=0)
    with pytest.raises(SpecError, match="units"):
        Activations(units=-1)
