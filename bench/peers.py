"""Other tools on the same line, for the loss alone. Whoever is missing raises an ImportError."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import torch

from bench.by_hand import without_tracking
from bench.cases import Case


def loss_landscapes(case: Case) -> Callable[[], object]:
    """Return the line of loss-landscapes."""
    import loss_landscapes as package
    from loss_landscapes.metrics import Loss

    model, metric = without_tracking(case.model()), Loss(case.criterion(), *case.data())
    # deepcopy_model keeps the model where it is; without it the last point stays in the weights.
    return lambda: package.random_line(
        model, metric, distance=0.1, steps=case.points, normalization="model", deepcopy_model=True
    )


def landscaper(case: Case) -> Callable[[], object]:
    """Return the line of landscaper, whose progress bars go nowhere."""
    from landscaper.compute import compute_loss_landscape

    model, (x, y), criterion = without_tracking(case.model()), case.data(), case.criterion()
    directions = [[torch.randn_like(parameter) for parameter in model.parameters()]]

    def line() -> None:
        with (
            Path(os.devnull).open("w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
        ):
            compute_loss_landscape(
                model,
                None,
                directions,
                lambda network, _: criterion(network(x), y).item(),
                steps=case.points,
                dim=1,
                device="cpu",
            )

    return line
