"""Sites to take measures at, and a check that a measure leaves everything as it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from landscape_cli import batches, losses, randomness
from landscape_cli.engine.plain import PlainSweep
from landscape_cli.engine.strategy import Line
from landscape_cli.objective import Objective
from landscape_cli.site import Site

Raws = Sequence[tuple[Tensor, Tensor]]


@contextmanager
def surveyed(
    model: nn.Module,
    raws: Raws,
    loss: str = "cross-entropy",
    *,
    lr: float = 0.1,
    norm_mode: Any = "batch",
    multiples: Sequence[float] = (0.5, 1.0, 2.0),
    seed: int = 0,
) -> Iterator[Site]:
    """Yield the site of `model` on `raws`, and check on leaving that nothing has changed."""
    resolved = losses.resolve(loss, model)
    like = next(model.parameters())

    def place(tensor: Tensor) -> Tensor:
        return tensor.to(like.device, like.dtype if tensor.is_floating_point() else None)

    narrowed = [batches.map_tensors(raw, place) for raw in raws]
    split = [batches.Batch.split(raw, model, whole=resolved.whole) for raw in narrowed]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = randomness.capture()
    with Objective(model, split, resolved, norm_mode=norm_mode, seed=seed) as objective:
        site = Site.survey(
            objective, label="here", learning_rate=lr, seed=seed, step_multiples=multiples
        )
        yield site
        for origin, tensor in zip(site.parameters.origin, site.parameters.tensors):
            assert same(origin, tensor.detach()), "the measure moved θ₀"
    for name, value in model.state_dict().items():
        assert same(before[name], value), name
    assert randomness.capture() == state


def same(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors have the same values, NaN where the other has NaN."""
    return torch.allclose(first, second, rtol=0, atol=0, equal_nan=True)


def taken(measure: Any, site: Site) -> dict[str, np.ndarray]:
    """Take a site measure; every field must be there, in the declared type and shape."""
    assert measure.refusal(site) == ""
    arrays = {name: np.asarray(values) for name, values in measure.measure(site).items()}
    check_fields(measure, arrays, ("checkpoint",))
    return arrays


def swept(
    measure: Any, site: Site, direction: Sequence[Tensor] | None = None
) -> dict[str, np.ndarray]:
    """Watch a line at the site's step multiples; every field must be there."""
    assert measure.refusal(site) == ""
    line = Line("gradient", direction or site.gradient, observers={"m": measure.observer(site)})
    sizes = [site.learning_rate * multiple for multiple in site.step_multiples]
    _, rows = PlainSweep(site, line).evaluate(sizes)
    own = {path.removeprefix("m/"): values for path, values in rows.items()}
    arrays = {name: np.asarray(v) for name, v in measure.summarise(own).items()}
    check_fields(measure, arrays, ("checkpoint", "direction"))
    return arrays


def check_fields(measure: Any, arrays: dict[str, np.ndarray], stacked: Sequence[str]) -> None:
    """Hold what a measure returned against what it declares."""
    assert set(arrays) == set(measure.fields)
    sizes: dict[str, int] = {}
    for name, values in arrays.items():
        declared = measure.fields[name]
        own = [dim for dim in declared.dims if dim not in stacked]
        assert values.ndim == len(own), name
        for dim, size in zip(own, values.shape):
            assert sizes.setdefault(dim, size) == size, f"{name}: {dim}"
        kind = "U" if declared.dtype == "str" else np.dtype(declared.dtype).kind
        assert values.dtype.kind == kind, name
