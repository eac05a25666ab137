"""Every strategy against the plain one, on every model that it serves."""

from __future__ import annotations

import engine_cases
import numpy as np
import pytest
import torch
from engine_cases import PROBLEMS

from landscape_cli import directions
from landscape_cli.engine.choice import STRATEGIES
from landscape_cli.engine.compiled import Compiled
from landscape_cli.engine.plain import Plain
from landscape_cli.engine.strategy import Line, Plane
from landscape_cli.site import Site

REWRITTEN = ("stacked", "compressed", "parallel")
PAIRS = [(s, p) for s in REWRITTEN for p, problem in PROBLEMS.items() if s in problem.serving]


def line_of(site: Site, kind: str, **options: bool) -> Line:
    if kind == "gradient":
        return Line(kind, site.gradient, **options)
    drawn = directions.random(site.parameters, 3, 0)
    return Line(kind, directions.scaled_to(drawn, site.gradient_norm), **options)


def plane_of(site: Site) -> Plane:
    drawn = directions.random_filter(site.parameters, 3, 1)
    return Plane("plane", (site.gradient, directions.scaled_to(drawn, site.gradient_norm)))


@pytest.mark.parametrize("kind", ["gradient", "random:0"])
@pytest.mark.parametrize(("strategy", "problem"), PAIRS)
def test_a_rewritten_line_agrees_with_plain_to_1e_10_in_float64(
    strategy: str, problem: str, kind: str
) -> None:
    with engine_cases.open_site(PROBLEMS[problem]) as site:
        line = line_of(site, kind)
        sizes = np.linspace(-0.3, 1, 7) * PROBLEMS[problem].reach
        expected, _ = Plain().prepare(site, line).evaluate(sizes)
        assert STRATEGIES[strategy].refusal(site, line) == ""
        found, _ = STRATEGIES[strategy].prepare(site, line, chunk=3).evaluate(sizes)
    np.testing.assert_allclose(found[:, [0, 1, 2, 4]], expected[:, [0, 1, 2, 4]], rtol=1e-10)
    scale = np.sqrt(expected[:, 1]) * site.gradient_norm
    np.testing.assert_allclose(found[:, 3] / scale, expected[:, 3] / scale, atol=1e-10)


@pytest.mark.parametrize(("strategy", "problem"), PAIRS)
def test_a_rewritten_line_agrees_with_plain_in_float32(strategy: str, problem: str) -> None:
    with engine_cases.open_site(PROBLEMS[problem], torch.float32) as site:
        line = line_of(site, "gradient")
        sizes = np.linspace(0.1, 1, 5) * PROBLEMS[problem].reach
        expected, _ = Plain().prepare(site, line).evaluate(sizes)
        found, _ = STRATEGIES[strategy].prepare(site, line, chunk=4).evaluate(sizes)
        norm = site.gradient_norm
    np.testing.assert_allclose(found[:, 0], expected[:, 0], rtol=1e-5)
    # The difference of two gradients carries the rounding of both, and flipped ReLU decisions.
    np.testing.assert_allclose(np.sqrt(found[:, 2]), np.sqrt(expected[:, 2]), atol=2e-4 * norm)
    np.testing.assert_allclose(np.sqrt(found[:, 1]), np.sqrt(expected[:, 1]), rtol=2e-4)


@pytest.mark.parametrize(("strategy", "problem"), PAIRS)
def test_losses_alone_are_those_of_the_full_points(strategy: str, problem: str) -> None:
    with engine_cases.open_site(PROBLEMS[problem]) as site:
        sizes = np.linspace(-0.5, 1, 4) * PROBLEMS[problem].reach
        expected, _ = Plain().prepare(site, line_of(site, "gradient")).evaluate(sizes)
        line = line_of(site, "gradient", gradients=False)
        found, _ = STRATEGIES[strategy].prepare(site, line, chunk=4).evaluate(sizes)
    np.testing.assert_allclose(found[:, 0], expected[:, 0], rtol=1e-12)
    assert np.isnan(found[:, 1:]).all()


@pytest.mark.parametrize(("strategy", "problem"), PAIRS)
def test_a_rewritten_plane_agrees_with_plain(strategy: str, problem: str) -> None:
    with engine_cases.open_site(PROBLEMS[problem]) as site:
        points = np.array([[0, 0], [1, 0], [0, 1], [0.4, -0.7]]) * PROBLEMS[problem].reach
        expected, _ = Plain().prepare(site, plane_of(site)).evaluate(points)
        found, _ = STRATEGIES[strategy].prepare(site, plane_of(site), chunk=3).evaluate(points)
        base = site.base_loss
    np.testing.assert_allclose(found[:, 0], expected[:, 0], rtol=1e-10)
    assert found[0, 0] == pytest.approx(base, rel=1e-12)


@pytest.mark.parametrize("problem", ["mlp-relu", "deep-linear-batchnorm", "gpt", "dropping"])
def test_the_model_is_bit_for_bit_what_it_was(problem: str) -> None:
    with engine_cases.open_site(PROBLEMS[problem]) as site:
        model = site.objective.model
        before = {name: value.clone() for name, value in model.state_dict().items()}
        STRATEGIES["stacked"].prepare(site, line_of(site, "gradient"), chunk=2).evaluate([0.1, 0.2])
        for name, value in model.state_dict().items():
            assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("strategy", REWRITTEN)
def test_the_same_chunks_give_the_same_bits(strategy: str) -> None:
    with engine_cases.open_site(PROBLEMS["deep-linear"], torch.float32) as site:
        line = line_of(site, "gradient")
        sizes = np.linspace(0.01, 0.1, 9)
        runs = [
            STRATEGIES[strategy].prepare(site, line, chunk=4).evaluate(sizes)[0] for _ in range(2)
        ]
    assert np.array_equal(*runs)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        ("mlp-l1", "sum of squares"),
        ("awkward", "sum of squares"),
        ("least-squares", "linear chain"),
    ],
)
def test_compression_refuses_what_it_would_not_keep(problem: str, reason: str) -> None:
    with engine_cases.open_site(PROBLEMS[problem]) as site:
        assert reason in STRATEGIES["compressed"].refusal(site, line_of(site, "gradient"))


def test_compression_refuses_few_samples() -> None:
    from dataclasses import replace

    few = replace(PROBLEMS["deep-linear"], batches=lambda: engine_cases._rows(5, 5, (40, 9)))
    with engine_cases.open_site(few) as site:
        reason = STRATEGIES["compressed"].refusal(site, line_of(site, "gradient"))
    assert "9 samples" in reason


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_graphs_are_refused_without_a_gpu() -> None:
    with engine_cases.open_site(PROBLEMS["mlp-relu"]) as site:
        assert "CUDA" in STRATEGIES["graph"].refusal(site, line_of(site, "gradient"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("strategy", ["graph", "stacked"])
@pytest.mark.parametrize("problem", ["mlp-relu", "deep-linear", "resnet", "gpt"])
def test_a_captured_line_agrees_with_plain_on_a_gpu(strategy: str, problem: str) -> None:
    with engine_cases.open_site(PROBLEMS[problem], device="cuda") as site:
        for options in ({}, {"gradients": False}):
            line = line_of(site, "gradient", **options)
            sizes = np.linspace(0.1, 1, 5) * PROBLEMS[problem].reach
            expected, _ = Plain().prepare(site, line).evaluate(sizes)
            found, _ = STRATEGIES[strategy].prepare(site, line, chunk=4).evaluate(sizes)
            np.testing.assert_allclose(found, expected, rtol=1e-8)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning")
@pytest.mark.parametrize("problem", ["mlp-tanh", "resnet"])
def test_a_compiled_line_agrees_with_plain(problem: str) -> None:
    with engine_cases.open_site(PROBLEMS[problem]) as site:
        line = line_of(site, "gradient")
        sizes = np.linspace(0.1, 1, 3) * PROBLEMS[problem].reach
        expected, _ = Plain().prepare(site, line).evaluate(sizes)
        # Traced and differentiated as by the usual backend, without generating code.
        found, _ = Compiled("aot_eager").prepare(site, line).evaluate(sizes)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
