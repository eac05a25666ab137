from __future__ import annotations

import cases
import numpy as np
import pytest
import torch

import landscape_cli as landscape


def probe(**options) -> landscape.Run:
    return landscape.probe(
        model=cases.Awkward().double(),
        data=cases.awkward_data(),
        lr=0.3,
        steps="0.5:4:5",
        measures="per-layer",
        strategy="plain",
        batch_size=8,
        batches=3,
        directions=("gradient", "random:1"),
        **options,
    )


def test_the_layers_parts_add_up_to_the_whole() -> None:
    run = probe()
    assert run.labels("per_layer/layer") == ["enter", "norm", "first", "again", "leave"]
    for part in ("gradient_change", "distance"):
        whole = np.sqrt((run[f"per_layer/{part}"] ** 2).sum(axis=-1))
        if part == "gradient_change":
            np.testing.assert_allclose(whole, run[part], rtol=1e-12)
        else:  # a random direction moves the parameter that the loss does not reach as well
            np.testing.assert_allclose(whole[:, 0], run[part][:, 0], rtol=1e-12)


def test_the_steepest_layer_ratio_is_taken_over_the_steps() -> None:
    run = probe()
    ratio = run["per_layer/gradient_change"] / run["per_layer/distance"]
    np.testing.assert_allclose(run["per_layer/beta"], ratio.max(axis=2), rtol=1e-14)


def test_a_layers_change_is_that_of_its_own_gradient() -> None:
    run = probe(norm_mode="running")
    model = cases.Awkward().double().eval()
    data = cases.awkward_data()
    x, y = data[torch.arange(23)]
    # All 23 samples are used, in another order, so the mean loss is the same.
    gradient = torch.autograd.grad(
        torch.nn.functional.cross_entropy(model(x), y), list(model.leave.parameters())
    )
    every = [p for n, p in model.named_parameters() if p.requires_grad and n != "unused"]
    step = torch.autograd.grad(torch.nn.functional.cross_entropy(model(x), y), every)
    with torch.no_grad():
        for p, g in zip(every, step, strict=True):
            p.sub_(0.15 * g)
    after = torch.autograd.grad(
        torch.nn.functional.cross_entropy(model(x), y), list(model.leave.parameters())
    )
    change = sum(float(((a - b) ** 2).sum()) for a, b in zip(after, gradient, strict=True)) ** 0.5
    assert run["per_layer/gradient_change"][0, 0, 0, -1] == pytest.approx(change, rel=1e-10)


def test_asking_for_layers_changes_no_number_of_the_run() -> None:
    plain = landscape.probe(
        model=cases.Awkward().double(),
        data=cases.awkward_data(),
        lr=0.3,
        steps="0.5:4:5",
        strategy="plain",
        batch_size=8,
        batches=3,
        directions=("gradient", "random:1"),
    )
    run = probe()
    for path in plain:
        np.testing.assert_array_equal(plain[path], run[path], err_msg=path)
