from __future__ import annotations

import random
from contextlib import contextmanager

import cases
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from landscape_cli import batches, losses, randomness
from landscape_cli.errors import MeasurementError
from landscape_cli.objective import Objective
from landscape_cli.parameters import Parameters, norm


def objective_of(
    model: nn.Module, raws: list, loss: str = "cross-entropy", **options: object
) -> Objective:
    resolved = losses.resolve(loss, model)
    split = [batches.Batch.split(raw, model, whole=resolved.whole) for raw in raws]
    return Objective(model, split, resolved, **options)


def awkward_raws() -> list[tuple[Tensor, Tensor]]:
    x, y = cases.awkward_data().tensors
    return [(x[:8], y[:8]), (x[8:16], y[8:16]), (x[16:], y[16:])]


def dense_hessian(objective: Objective) -> Tensor:
    """Return the Hessian by differentiating every component of the gradient; float64."""
    tensors = objective.parameters.tensors
    totals = [
        objective.loss.total(objective.model(*batch.inputs), batch) for batch in objective.batches
    ]
    value = torch.stack(totals).sum() / objective.divisor
    first = torch.autograd.grad(value, tensors, create_graph=True, allow_unused=True)
    flat = torch.cat(
        [(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(tensors, first)]
    )
    rows = []
    for component in flat:
        if not component.requires_grad:
            rows.append(torch.zeros(len(flat), dtype=flat.dtype))
            continue
        second = torch.autograd.grad(component, tensors, retain_graph=True, allow_unused=True)
        rows.append(
            torch.cat(
                [
                    (torch.zeros_like(p) if g is None else g).flatten()
                    for p, g in zip(tensors, second)
                ]
            )
        )
    return torch.stack(rows)


def test_hessian_vector_products_are_those_of_the_dense_hessian() -> None:
    model = cases.Awkward(width=4).double()
    with objective_of(model, awkward_raws()) as objective:
        hessian = dense_hessian(objective)
        generator = torch.Generator().manual_seed(0)
        vector = [
            torch.randn(p.shape, generator=generator, dtype=torch.float64)
            for p in objective.parameters.tensors
        ]
        product = torch.cat([p.flatten() for p in objective.hessian_vector_product(vector)])
        expected = hessian @ torch.cat([v.flatten() for v in vector])
        torch.testing.assert_close(product, expected, rtol=1e-10, atol=1e-12)
        ratio = float(expected.norm() / norm(vector))
        assert objective.directional_curvature(vector) == pytest.approx(ratio, rel=1e-10)


class Counting(nn.Module):
    """Changes buffers by hand in every forward pass: in place, and by assigning a new tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, dtype=torch.float64))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.full((2,), torch.nan, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.mean = x.mean(0)
        return (x * self.weight).sum(1) * self.calls


def test_buffers_that_a_forward_pass_changes_are_the_same_at_every_point() -> None:
    model = Counting()
    mean = model.mean
    x = torch.arange(6.0, dtype=torch.float64).reshape(3, 2)
    with objective_of(model, [(x, torch.ones(3).double())], "mse") as objective:
        first = objective.value()
        second, _ = objective.value_and_gradient()
        assert first == second
    assert model.calls == 0
    assert model.mean is mean
    assert model.mean.isnan().all()


class Noisy(nn.Module):
    """Draws from every generator there is."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0] * self.weight * (random.random() + np.random.rand() + torch.rand(()))


def test_whatever_a_forward_pass_draws_is_the_same_at_every_point() -> None:
    x = torch.ones(2, 1, dtype=torch.float64)
    state = randomness.capture()
    with objective_of(Noisy(), [(x, x[:, 0]), (2 * x, x[:, 0])], "mse") as objective:
        assert objective.draws_random
        assert len({float(objective.value()) for _ in range(3)}) == 1
        first = float(objective.value())
    assert randomness.capture() == state
    with objective_of(Noisy(), [(x, x[:, 0]), (2 * x, x[:, 0])], "mse", seed=1) as objective:
        assert float(objective.value()) != first


def test_a_net_that_draws_nothing_is_not_seeded() -> None:
    with objective_of(cases.Awkward().double(), awkward_raws()) as objective:
        assert not objective.draws_random


class OutputTap:
    """Listens to the output of one layer."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer
        self.outputs: list[Tensor] = []
        self.received: list[Tensor | None] = []

    @contextmanager
    def listen(self, batch: int):
        def keep(module: nn.Module, inputs: object, output: Tensor) -> None:
            self.outputs = [output]

        handle = self.layer.register_forward_hook(keep)
        try:
            yield
        finally:
            handle.remove()

    def tensors(self) -> list[Tensor]:
        return self.outputs

    def receive(self, gradients: list[Tensor | None]) -> None:
        self.received.extend(gradients)


def test_a_tap_receives_the_gradients_of_each_batchs_summed_loss() -> None:
    model = cases.Awkward().double()
    raws = awkward_raws()
    tap = OutputTap(model.leave)
    with objective_of(model, raws, norm_mode="running") as objective:
        plain = objective.value_and_gradient()
        tapped = objective.value_and_gradient(tap)
        assert plain[0] == tapped[0]
        assert all(map(torch.equal, plain[1], tapped[1]))
        for (x, y), gradient in zip(raws, tap.received, strict=True):
            scores = model(x).detach()
            expected = torch.softmax(scores, 1) - torch.nn.functional.one_hot(y, 3)
            torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)


class Together(nn.Module):
    """Uses nothing but the sum of two parameters, whose gradients autograd makes one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.ones(3, dtype=torch.float64))
        self.b = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (x * (self.a + self.b) ** 2).sum(1)


def together_raws() -> list[tuple[Tensor, Tensor]]:
    x = torch.arange(12.0, dtype=torch.float64).reshape(4, 3)
    return [(x[i : i + 1], torch.zeros(1, dtype=torch.float64)) for i in range(4)]


@pytest.mark.parametrize("streamed", [10**9, 0])
def test_gradients_that_share_memory_are_added_up_once(
    streamed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("landscape_cli.objective.STREAMED", streamed)
    x = torch.cat([x for x, _ in together_raws()])
    with objective_of(Together(), together_raws(), "mse") as objective:
        _, found = objective.value_and_gradient()
        # L = mean (4 Σ x)², so that ∂L/∂aᵢ = mean 2 · (4 Σ x) · 4 xᵢ.
        expected = (32 * x.sum(1, keepdim=True) * x).mean(0)
        for gradient in found:
            torch.testing.assert_close(gradient, expected, rtol=1e-14, atol=0)
        hessian = dense_hessian(objective)
        vector = [torch.tensor([1.0, 2, 3]).double(), torch.tensor([4.0, -5, 6]).double()]
        product = torch.cat(objective.hessian_vector_product(vector))
        torch.testing.assert_close(product, hessian @ torch.cat(vector), rtol=1e-13, atol=0)
        assert [v.tolist() for v in vector] == [[1, 2, 3], [4, -5, 6]]


@pytest.mark.parametrize("count", [1, 3])
def test_reduced_gradients_are_the_whole_ones_bit_for_bit(count: int) -> None:
    model = cases.Awkward().double()
    model.unused.grad = kept = torch.ones_like(model.unused)
    with objective_of(model, awkward_raws()[:count]) as objective:
        value, gradient = objective.value_and_gradient()
        found: dict[int, Tensor | None] = {}
        assert objective.value_and_reduction(found.__setitem__) == value
        for position, expected in enumerate(gradient):
            part = found.pop(position)
            assert torch.equal(torch.zeros_like(expected) if part is None else part, expected)
        assert not found
        reference = [torch.full_like(g, 0.25) for g in gradient]
        _, squared = objective.value_and_change(reference)
        difference = norm([g - r for g, r in zip(gradient, reference, strict=True)])
        assert float(squared.sqrt()) == pytest.approx(difference, rel=1e-14)
    assert model.unused.grad is kept
    assert torch.equal(kept, torch.ones_like(kept))
    assert all(p.grad is None for p in model.parameters() if p is not model.unused)


@pytest.mark.parametrize("mode", ["batch", "running", "frozen"])
def test_several_batches_of_a_large_model_are_added_up_in_one_copy(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with objective_of(cases.Awkward().double(), awkward_raws(), norm_mode=mode) as objective:
        value, gradient = objective.value_and_gradient()
        monkeypatch.setattr("landscape_cli.objective.STREAMED", 0)
        again, found = objective.value_and_gradient()
        assert objective.unreached == ("unused",)
    assert value == again
    assert all(map(torch.equal, gradient, found))


@pytest.mark.parametrize("where", ["before", "within"])
def test_theta_is_put_back_when_putting_it_back_is_interrupted(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = cases.Awkward()
    before = [p.detach().clone() for p in model.parameters()]
    restore, calls = Parameters.restore, []

    def interrupted(self: Parameters) -> None:
        calls.append(1)
        if len(calls) == 1 and where == "before":
            raise KeyboardInterrupt
        restore(self)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Parameters, "restore", interrupted)
    with pytest.raises(KeyboardInterrupt), objective_of(model, awkward_raws()[:1]) as objective:
        objective.parameters.move([torch.ones_like(p) for p in objective.parameters.tensors], 1.0)
    assert all(map(torch.equal, model.parameters(), before))


def test_unreached_parameters_have_zero_gradients() -> None:
    model = cases.Awkward().double()
    with objective_of(model, awkward_raws()) as objective:
        _, gradient = objective.value_and_gradient()
        assert objective.unreached == ("unused",)
        position = objective.parameters.names.index("unused")
        assert torch.equal(gradient[position], torch.zeros(3).double())


def test_an_error_in_the_forward_pass_says_what_the_model_said() -> None:
    with (
        pytest.raises(MeasurementError) as caught,
        objective_of(nn.Linear(7, 2), [(torch.zeros(2, 4), torch.zeros(2).long())]),
    ):
        pass
    assert "mat1 and mat2" in caught.value.seen


def test_the_training_flags_come_back_one_by_one() -> None:
    model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(4), nn.Linear(4, 3)).train()
    model[1].eval()
    x, y = cases.classification_data().tensors
    with objective_of(model, [(x, y)], norm_mode="running"):
        assert not model[0].training
    assert [m.training for m in model] == [True, False, True]


def test_attention_has_a_second_derivative() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).double()
    head = nn.Sequential(model, nn.Flatten(), nn.Linear(24, 3).double())
    x = torch.randn(5, 3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with objective_of(head, [(x, torch.zeros(5).long())]) as objective:
        _, gradient = objective.value_and_gradient()
        limit = objective.directional_curvature(gradient)
        objective.parameters.move(gradient, 1e-5)
        _, ahead = objective.value_and_gradient()
        objective.parameters.move(gradient, -1e-5)
        _, behind = objective.value_and_gradient()
        objective.parameters.restore()
        difference = norm([a - b for a, b in zip(ahead, behind, strict=True)])
        # A central difference with h = 1e-5 is good to about h² and rounding over h.
        assert limit == pytest.approx(difference / 2e-5 / norm(gradient), rel=1e-6)
