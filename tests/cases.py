"""Small problems with known answers, shared by all tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset


class Quadratic(nn.Module):
    """L(θ) = ½ θᵀAθ: its Hessian is A everywhere, whatever the data."""

    def __init__(self, matrix: Tensor, start: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix)
        self.theta = nn.Parameter(start.clone())

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * self.theta @ self.matrix @ self.theta + 0 * x.sum()


def quadratic(size: int = 5, seed: int = 0) -> Quadratic:
    """Return a quadratic with a random symmetric, indefinite Hessian; float64."""
    generator = torch.Generator().manual_seed(seed)
    square = torch.randn(size, size, generator=generator, dtype=torch.float64)
    start = torch.randn(size, generator=generator, dtype=torch.float64)
    return Quadratic((square + square.T) / 2, start)


def one_batch(rows: int = 1) -> list[tuple[Tensor]]:
    """Return data for a model that ignores it."""
    return [(torch.zeros(rows, 1, dtype=torch.float64),)]


class Awkward(nn.Module):
    """Everything that goes wrong elsewhere: BatchNorm, a tied pair, a frozen and an unused tensor.

    ``first`` and ``again`` are two layers with one weight; ``still`` does not train; ``unused``
    trains but the loss never reaches it.
    """

    def __init__(self, width: int = 6, classes: int = 3, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.enter = nn.Linear(4, width)
        self.norm = nn.BatchNorm1d(width)
        self.first = nn.Linear(width, width)
        self.again = nn.Linear(width, width)
        self.again.weight = self.first.weight
        self.still = nn.Linear(width, width)
        self.still.requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(3))
        self.leave = nn.Linear(width, classes)
        with torch.no_grad():
            for name, tensor in [*self.named_parameters(), *self.named_buffers()]:
                if tensor.is_floating_point():
                    tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.5)
                if name.endswith("running_var"):
                    tensor.abs_().add_(0.5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.norm(self.enter(x)))
        hidden = torch.tanh(self.again(torch.tanh(self.first(hidden))))
        return self.leave(torch.tanh(self.still(hidden)))


def awkward_data(samples: int = 23, seed: int = 1) -> TensorDataset:
    """Return data whose last batch of eight is ragged."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 3, (samples,), generator=generator)
    return TensorDataset(x, y)


class LeastSquares(nn.Module):
    """Ordinary least squares: the prediction is x·w."""

    def __init__(self, features: int = 4, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.w = nn.Parameter(torch.randn(features, generator=generator, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.w


def regression_data(samples: int = 32, features: int = 4, seed: int = 2) -> TensorDataset:
    """Return Gaussian inputs and noisy linear targets; float64."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, features, generator=generator, dtype=torch.float64)
    w = torch.randn(features, generator=generator, dtype=torch.float64)
    noise = torch.randn(samples, generator=generator, dtype=torch.float64)
    return TensorDataset(x, x @ w + 0.1 * noise)


class Dropping(nn.Module):
    """A net with dropout, which draws a mask at every forward pass."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.layers = nn.Sequential(
                nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 3)
            )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def classification_data(samples: int = 24, features: int = 4, seed: int = 3) -> Dataset:
    """Return float32 inputs and three classes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, features, generator=generator)
    return TensorDataset(x, torch.randint(0, 3, (samples,), generator=generator))


class Tanh3(nn.Module):
    """A smooth dense net of three layers; the middle one has no bias."""

    def __init__(self, features: int = 4, width: int = 5, classes: int = 3, seed: int = 0) -> None:
        super().__init__()
        self.enter = nn.Linear(features, width)
        self.middle = nn.Linear(width, width, bias=False)
        self.leave = nn.Linear(width, classes)
        fill_randomly(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(torch.tanh(self.middle(torch.tanh(self.enter(x)))))


class SmallConvNet(nn.Module):
    """Convolutions with stride, padding and groups, in-place ReLU, pooling; 3 classes of 2×6×6."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 3, stride=2, groups=2, bias=False)
        self.leave = nn.Linear(16, 3)
        self.bend = nn.ReLU(inplace=True)
        fill_randomly(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.second(self.bend(self.first(x))))
        return self.leave(hidden.flatten(1))


class SmallBatchNormNet(nn.Module):
    """Dense and convolutional layers with BatchNorm behind each; 3 classes of 2×4×4."""

    def __init__(self, seed: int = 0, eps: float = 1e-5) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1)
        self.norm2d = nn.BatchNorm2d(3, eps=eps)
        self.dense = nn.Linear(48, 6)
        self.norm1d = nn.BatchNorm1d(6, eps=eps)
        self.leave = nn.Linear(6, 3)
        fill_randomly(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.norm2d(self.conv(x))).flatten(1)
        return self.leave(torch.tanh(self.norm1d(self.dense(hidden))))


def fill_randomly(model: nn.Module, seed: int) -> None:
    """Give weights and floating buffers values that depend on the seed alone; float64."""
    generator = torch.Generator().manual_seed(seed)
    model.double()
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.is_floating_point():
                values = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
                tensor.copy_(values.abs() + 0.5 if name.endswith("running_var") else 0.6 * values)


def image_data(samples: int, size: int, seed: int = 4) -> list[tuple[Tensor, Tensor]]:
    """Return one batch of two-channel images of `size` × `size` in three classes; float64."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 2, size, size, generator=generator, dtype=torch.float64)
    return [(x, torch.randint(0, 3, (samples,), generator=generator))]


def vector_data(samples: int, features: int = 4, seed: int = 5) -> list[tuple[Tensor, Tensor]]:
    """Return one batch of vectors in three classes; float64."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, features, generator=generator, dtype=torch.float64)
    return [(x, torch.randint(0, 3, (samples,), generator=generator))]
