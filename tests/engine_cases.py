"""Models, data and losses that every strategy of the engine is tried on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import cases
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from landscape_cli import losses
from landscape_cli.batches import Batch, map_tensors
from landscape_cli.objective import Objective
from landscape_cli.site import Site
from sample_models.adapter import build_model

Raw = tuple[Tensor, ...]


@dataclass(frozen=True)
class Problem:
    """What a strategy is tried on.

    Attributes:
        model: builds the model in float64, the same every time.
        batches: two batches, the second one smaller.
        loss: name of the loss.
        norm_mode: as in a probe.
        serving: names of the strategies that must serve here, plain aside.
        reach: largest step size.
    """

    model: Callable[[], nn.Module]
    batches: Callable[[], list[Raw]]
    loss: str
    serving: frozenset[str]
    norm_mode: str = "batch"
    reach: float = 0.1


def _images(size: int = 8, channels: int = 3) -> list[Raw]:
    generator = torch.Generator().manual_seed(5)
    return [
        (
            torch.randn(count, channels, size, size, generator=generator, dtype=torch.float64),
            torch.randint(0, 10, (count,), generator=generator),
        )
        for count in (7, 4)
    ]


def _rows(width: int, outputs: int, counts: tuple[int, ...] = (40, 25)) -> list[Raw]:
    generator = torch.Generator().manual_seed(6)
    mix = torch.randn(width, outputs, generator=generator, dtype=torch.float64)
    batches = []
    for count in counts:
        x = torch.randn(count, width, generator=generator, dtype=torch.float64)
        noise = torch.randn(count, outputs, generator=generator, dtype=torch.float64)
        batches.append((x, x @ mix + 0.1 * noise))
    return batches


def _labelled(width: int, classes: int, counts: tuple[int, ...] = (9, 6)) -> list[Raw]:
    generator = torch.Generator().manual_seed(7)
    return [
        (
            torch.randn(count, width, generator=generator, dtype=torch.float64),
            torch.randint(0, classes, (count,), generator=generator),
        )
        for count in counts
    ]


def _tokens() -> list[Raw]:
    generator = torch.Generator().manual_seed(8)
    draws = [torch.randint(0, 11, (count, 6), generator=generator) for count in (3, 2)]
    return [(tokens[:, :-1], tokens[:, 1:]) for tokens in draws]


def _sample(name: str, **options: object) -> Callable[[], nn.Module]:
    return lambda: build_model(name, seed=0, **options).double()


def _bias_chain() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        layers = [nn.Linear(6, 5), nn.Linear(5, 5, bias=False), nn.BatchNorm1d(5), nn.Linear(5, 3)]
        return nn.Sequential(*layers).double()


def _functional() -> nn.Module:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.leave = nn.Linear(12, 5), nn.Linear(5, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.leave(F.relu(self.enter(torch.flatten(x, 1))))

    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Functional().double()


LINEAR = frozenset({"stacked", "compressed", "parallel"})
USUAL = frozenset({"stacked", "parallel"})
RANDOM = frozenset({"stacked"})
MLP = {"hidden": (12, 8), "in_features": 30, "classes": 5}
PROBLEMS: dict[str, Problem] = {
    "deep-linear": Problem(
        _sample("deep-linear", depth=6, width=5), lambda: _rows(5, 5), "mse", LINEAR
    ),
    "deep-linear-sse": Problem(
        _sample("deep-linear", depth=4, width=5), lambda: _rows(5, 5), "sse", LINEAR, reach=1e-4
    ),
    "deep-linear-batchnorm": Problem(
        _sample("deep-linear", depth=5, width=5, norm="batch"), lambda: _rows(5, 5), "mse", LINEAR
    ),
    "deep-linear-running": Problem(
        _sample("deep-linear", depth=5, width=5, norm="batch"),
        lambda: _rows(5, 5),
        "mse",
        LINEAR,
        "running",
    ),
    "biases": Problem(_bias_chain, lambda: _rows(6, 3), "mse", LINEAR),
    "mlp-relu": Problem(_sample("mlp", **MLP), lambda: _labelled(30, 5), "cross-entropy", USUAL),
    "mlp-many-samples": Problem(
        _sample("mlp", **MLP), lambda: _labelled(30, 5, (50, 20)), "cross-entropy", USUAL
    ),
    "mlp-batchnorm": Problem(
        _sample("mlp", norm="batch", **MLP), lambda: _labelled(30, 5), "cross-entropy", USUAL
    ),
    "mlp-frozen": Problem(
        _sample("mlp", norm="batch", **MLP),
        lambda: _labelled(30, 5),
        "cross-entropy",
        USUAL,
        "frozen",
    ),
    "mlp-layernorm": Problem(
        _sample("mlp", norm="layer", **MLP), lambda: _labelled(30, 5), "cross-entropy", USUAL
    ),
    **{
        f"mlp-{name}": Problem(
            _sample("mlp", activation=name, **MLP),
            lambda: _labelled(30, 5),
            "cross-entropy",
            USUAL,
        )
        for name in ("tanh", "sigmoid", "gelu")
    },
    "mlp-l1": Problem(_sample("mlp", **MLP), lambda: _rows(30, 5, (9, 6)), "l1", USUAL),
    "functional": Problem(_functional, lambda: _labelled(12, 4), "cross-entropy", USUAL),
    "cnn": Problem(
        _sample("cnn", channels=(4, 5, 4), hidden=6, image_size=8),
        _images,
        "cross-entropy",
        USUAL,
    ),
    "vgg-batchnorm": Problem(
        _sample("vgg", width=2, norm="batch", image_size=8), _images, "cross-entropy", USUAL
    ),
    "resnet": Problem(
        _sample("resnet", depth=8, width=4, norm="batch"), _images, "cross-entropy", USUAL
    ),
    "gpt": Problem(
        _sample("gpt", layers=1, heads=2, width=8, context=6, vocabulary=11),
        _tokens,
        "cross-entropy",
        USUAL,
    ),
    "awkward": Problem(
        lambda: cases.Awkward().double(), lambda: _labelled(4, 3), "cross-entropy", USUAL
    ),
    "least-squares": Problem(
        cases.LeastSquares,
        lambda: [(x, y[:, 0]) for x, y in _rows(4, 1)],
        "mse",
        USUAL,
    ),
    "dropping": Problem(
        lambda: cases.Dropping().double(), lambda: _labelled(4, 3), "cross-entropy", RANDOM
    ),
}


@contextmanager
def open_site(
    problem: Problem, dtype: torch.dtype = torch.float64, device: str = "cpu"
) -> Iterator[Site]:
    """Open the problem's objective and survey it."""
    model = problem.model().to(device, dtype)

    def convert(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else None)

    batches = [Batch.split(map_tensors(raw, convert), model) for raw in problem.batches()]
    loss = losses.resolve(problem.loss, model)
    with Objective(model, batches, loss, norm_mode=problem.norm_mode, seed=1) as objective:
        yield Site.survey(objective, label="here", learning_rate=0.1, seed=1, threads=2)
