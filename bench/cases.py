"""The networks that are timed, with their data, loss and step sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sample_models.adapter import build_model

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """A network and what it is timed on.

    Attributes:
        name: short, for the command line.
        title: for the table.
        target: name of the sample model.
        options: its options.
        loss: name of the loss in the engine.
        batch: samples.
        points: points of a line.
        reach: largest step size along the gradient.
    """

    name: str
    title: str
    target: str
    options: dict[str, object]
    loss: str
    batch: int
    points: int
    reach: float

    def model(self) -> nn.Module:
        """Build the network, the same every time, in training mode."""
        return build_model(self.target, seed=0, **self.options).train()

    def data(self) -> tuple[Tensor, Tensor]:
        """Draw inputs and targets, the same every time."""
        generator = torch.Generator().manual_seed(1)
        if self.target == "deep-linear":
            x = torch.randn(self.batch, 10, generator=generator)
            return x, x @ torch.randn(10, 10, generator=generator)
        if self.target == "gpt":
            tokens = torch.randint(0, 256, (self.batch, 65), generator=generator)
            return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        shape = (784,) if self.target == "mlp" else (3, 32, 32)
        x = torch.randn(self.batch, *shape, generator=generator)
        return x, torch.randint(0, 10, (self.batch,), generator=generator)

    def steps(self) -> np.ndarray:
        """Return the step sizes, shape (points,)."""
        return np.linspace(self.reach / self.points, self.reach, self.points)

    def criterion(self) -> Loss:
        """Return the loss as somebody would write it: output and target to a scalar."""
        if self.loss == "mse":
            return F.mse_loss
        if self.target == "gpt":
            return lambda scores, target: F.cross_entropy(scores.flatten(0, 1), target.flatten())
        return F.cross_entropy

    def scaled(self, *, points: int = 1, batch: int = 1, wider: bool = False) -> Case:
        """Return the case with so many times the points, or the samples, or a wider network."""
        options = {**self.options, **WIDER[self.name]} if wider else self.options
        return replace(self, points=self.points * points, batch=self.batch * batch, options=options)

    @property
    def parameters(self) -> int:
        """Number of parameters of the network."""
        return sum(parameter.numel() for parameter in self.model().parameters())


CASES = {
    case.name: case
    for case in (
        Case("linear", "deep linear net, 25×(10×10)", "deep-linear", {}, "mse", 1000, 256, 1e-3),
        Case("mlp", "MLP, 3×100", "mlp", {}, "cross-entropy", 128, 256, 0.4),
        Case("cnn", "CNN, 32-64-32", "cnn", {}, "cross-entropy", 128, 32, 0.1),
        Case("gpt", "GPT, 2 layers of 64", "gpt", {}, "cross-entropy", 16, 64, 0.1),
        Case("resnet", "ResNet-20", "resnet", {"norm": "batch"}, "cross-entropy", 128, 24, 0.1),
        Case(
            "vgg", "VGG-11 with BatchNorm", "vgg", {"norm": "batch"}, "cross-entropy", 128, 12, 0.1
        ),
    )
}
WIDER: Mapping[str, dict[str, object]] = {
    "linear": {"depth": 100},
    "mlp": {"hidden": (300, 300, 300)},
    "cnn": {"channels": (64, 128, 64)},
    "gpt": {"width": 128},
    "resnet": {"width": 32},
    "vgg": {"width": 128},
}
"""Options that give a case a multiple of its parameters, to see how the cost grows."""
