"""What a large model takes beside its own weights, in copies of θ, counted by the allocator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from allocations import peak_allocation
from sites import surveyed
from torch import nn

import landscape_cli as landscape
from landscape_cli.engine.headings import Headings
from landscape_cli.engine.limit import difference_curvature, limit
from landscape_cli.engine.plain import Plain
from landscape_cli.engine.regenerated import Regenerated
from landscape_cli.engine.strategy import Line
from landscape_cli.objective import STREAMED
from landscape_cli.site import Site, noise_floor

WIDTH, LAYERS = 1600, 10
COUNT = LAYERS * WIDTH**2
COPY = 4 * COUNT
SPARE = 0.25
"""Copies that may come on top: the largest tensor is a tenth of θ, activations are a 400th."""


def net() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def rows(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    pairs = ((torch.randn(4, WIDTH, generator=generator) for _ in range(2)) for _ in range(count))
    return [(x, y) for x, y in pairs]


@contextmanager
def taking(copies: float) -> Iterator[None]:
    """Check that the block takes no more copies of θ than that, and not one fewer."""
    with peak_allocation() as peak:
        yield
    assert copies - 0.9 < peak.bytes / COPY <= copies + SPARE


@pytest.fixture(scope="module")
def sites() -> Iterator[dict[int, Site]]:
    """One site with a single batch, and one with two, of models of their own."""
    assert COUNT >= 25_000_000 > STREAMED
    with surveyed(net(), rows(1), "mse") as single, surveyed(net(), rows(2), "mse") as double:
        yield {1: single, 2: double}


def regenerated(site: Site) -> Regenerated:
    return Regenerated.random(site.parameters, 0, 1, 1.0)


STAGES: dict[str, tuple[Callable[[Site], object], float]] = {
    "gradient": (lambda s: sweep(s, s.gradient), 0),
    "regenerated": (lambda s: sweep(s, regenerated(s)), 0.2),
    "limit": (lambda s: limit(s, s.gradient, []), 1),
    "limit of what is regenerated": (lambda s: limit(s, regenerated(s), []), 2),
    "difference": (lambda s: difference_curvature(s, s.gradient), 1),
    "noise floor": (noise_floor, 0),
}
"""What is done at a site that has θ₀ and g, and the copies it takes with a single batch."""


def sweep(site: Site, direction: object) -> None:
    Plain().prepare(site, Line("some", direction)).evaluate([0.1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stage", "batches"), [*((name, 1) for name in STAGES), ("gradient", 2), ("limit", 2)]
)
def test_a_site_takes_no_more_copies_than_are_documented(
    stage: str, batches: int, sites: dict[int, Site]
) -> None:
    run, copies = STAGES[stage]
    with taking(copies + (batches > 1)):  # several batches are added up in one more
        run(sites[batches])


def test_a_site_is_opened_with_two_copies() -> None:
    model, data = net(), rows(1)
    with taking(3), surveyed(model, data, "mse"):
        pass  # the third is for the check that nothing has changed


def test_a_random_direction_is_one_copy(sites: dict[int, Site]) -> None:
    headings = Headings(sites[1], trajectory=[Path()], position=0, changed=lambda: None)
    with taking(1):
        direction = headings.direction("random:1")
    assert isinstance(direction, list)


@pytest.mark.parametrize(("direction", "copies"), [("gradient", 3), ("random:1", 4)])
def test_a_probe_of_a_live_model_takes_one_copy_more_than_its_sweep(
    direction: str, copies: int
) -> None:
    model, data = net(), rows(1)
    with taking(copies):
        run = landscape.probe(
            model=model, data=data, loss="mse", lr=0.1, steps="1:2:1", directions=(direction,),
            strategy="plain",
        )  # fmt: skip
    assert run.complete
