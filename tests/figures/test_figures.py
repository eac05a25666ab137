"""What each kind of figure draws: numbers from the run, marks where something is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import changed, damaged, synthetic_run, with_measures

from landscape_cli.figures.activations import draw_histograms, draw_moments
from landscape_cli.figures.bands import draw_bands
from landscape_cli.figures.conditioning import draw_conditioning, draw_conditioning_of_units
from landscape_cli.figures.covariate_shift import (
    draw_covariate_shift,
    draw_covariate_shift_by_layer,
)
from landscape_cli.figures.distance import draw_distance
from landscape_cli.figures.heatmap import draw_heatmap
from landscape_cli.figures.hessian_spectrum import draw_hessian_spectrum
from landscape_cli.figures.learning_rate_range import draw_learning_rate_range
from landscape_cli.figures.line import draw_line
from landscape_cli.figures.normalisation_bounds import draw_normalisation_bounds
from landscape_cli.figures.plane import draw_contour, draw_surface
from landscape_cli.figures.smoothness import draw_smoothness

OVER_RUNS = {
    "bands": draw_bands,
    "smoothness": draw_smoothness,
    "distance": draw_distance,
    "line": draw_line,
    "covariate shift": lambda runs, **k: draw_covariate_shift(runs, layer="features.1", **k),
    "covariate shift by layer": draw_covariate_shift_by_layer,
    "moments": lambda runs, **k: draw_moments(runs, layer="features.1", **k),
    "histograms": lambda runs, **k: draw_histograms(runs, layer="features.1", **k),
    "conditioning": draw_conditioning,
    "units": draw_conditioning_of_units,
    "spectrum": draw_hessian_spectrum,
    "learning rates": draw_learning_rate_range,
    "bounds": draw_normalisation_bounds,
}
OVER_ONE = {
    "heatmap": draw_heatmap,
    "contour": draw_contour,
    "surface": draw_surface,
}
RUNS = {
    "trajectory": lambda: synthetic_run(6),
    "one checkpoint": lambda: synthetic_run(1),
    "one step": lambda: synthetic_run(4, steps=1),
    "nothing measured": lambda: damaged(synthetic_run(4), 0, slice(None)),
    "nothing finite": lambda: damaged(synthetic_run(4), 2, slice(None)),
    "unknown steps": lambda: changed(synthetic_run(4), training_step=np.full(4, -1)),
    "steps through zero": lambda: synthetic_run(4, multiples=np.linspace(-1, 1, 9)),
    "enormous": lambda: synthetic_run(4, base_loss=[1e150, 1e100, 1e14, 1.0]),
}


def numbers(figure) -> int:
    """Count the finite numbers along the vertical axis of all traces."""
    total = 0
    for trace in figure.data:
        values = trace.z if trace.type in ("heatmap", "contour", "surface") else trace.y
        values = np.array([np.nan if v is None else v for v in np.ravel(values)], dtype=float)
        total += int(np.isfinite(values).sum())
    return total


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("kind", OVER_RUNS)
def test_every_figure_of_runs_draws_every_kind_of_run(kind, run):
    built = with_measures(RUNS[run]())
    figure = OVER_RUNS[kind]([built, built], labels=["A", "B"])
    figure.to_json(validate=True)
    assert figure.layout.meta["title"]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("kind", OVER_ONE)
def test_every_figure_of_one_run_draws_every_kind_of_run(kind, run):
    figure = OVER_ONE[kind](with_measures(RUNS[run]()), label="A")
    figure.to_json(validate=True)


@pytest.mark.parametrize("kind", OVER_RUNS)
def test_labels_reach_plotly_without_markup(kind):
    run = with_measures(synthetic_run(4))
    figure = OVER_RUNS[kind]([run, run], labels=["<b>A</b>", "<img src=x onerror=alert(1)>"])
    text = figure.to_json()
    assert "\\u003cb\\u003eA" not in text
    assert "<b>A" not in text
    assert "<img" not in text
    assert "\\u003cimg" not in text


def test_the_band_runs_between_minimum_and_maximum():
    run = synthetic_run(5, noise=0.5)
    figure = draw_bands([run])
    outline = next(t for t in figure.data if t.fill == "toself" and t.yaxis == "y")
    high, low = run["loss_range/maximum"][:, 0], run["loss_range/minimum"][:, 0]
    expected = np.concatenate([high, low[::-1]])
    np.testing.assert_allclose(outline.y[:-1], expected, rtol=1e-6)


def test_a_band_is_not_drawn_across_a_gap():
    figure = draw_bands([damaged(synthetic_run(6), 0, 2)])
    outline = next(t for t in figure.data if t.fill == "toself")
    pieces = np.isnan(np.array(outline.x, dtype=float)).sum()
    assert pieces == 2
    assert 200.0 not in np.array(outline.x)


def test_a_checkpoint_with_some_points_not_finite_gets_a_cross():
    figure = draw_bands([damaged(synthetic_run(6), 2, 3, slice(10, None))])
    cross = next(t for t in figure.data if t.name == "some points not finite")
    assert np.array(cross.x).tolist() == [300.0]


def test_saturated_points_are_hollow_and_the_others_are_not():
    saturated = np.zeros((6, 1), np.uint8)
    saturated[[1, 4]] = 1
    run = changed(synthetic_run(6), effective_smoothness__saturated=saturated)
    figure = draw_smoothness([run], labels=["A"])
    hollow = next(t for t in figure.data if t.name == "A: saturated")
    assert hollow.marker.color == "#ffffff"
    assert np.array(hollow.x).tolist() == [100.0, 400.0]
    beta = run["effective_smoothness/beta"][[1, 4], 0]
    np.testing.assert_allclose(hollow.y, beta, rtol=1e-6)


def test_the_edge_of_stability_is_at_two_in_the_panel_of_beta_times_lr():
    figure = draw_smoothness([synthetic_run(6)])
    (edge,) = figure.layout.shapes
    assert (edge.y0, edge.y1, edge.yref) == (2, 2, "y2")


def test_gradient_change_is_drawn_against_the_distance_that_was_moved():
    run = synthetic_run(3)
    figure = draw_distance([run])
    shown = [trace for trace in figure.data if trace.visible]
    assert len(shown) == 1
    np.testing.assert_allclose(shown[0].x, run["distance"][1, 0], rtol=1e-6)
    np.testing.assert_allclose(shown[0].y, run["gradient_change"][1, 0], rtol=1e-6)


def test_every_place_of_the_slider_shows_one_curve_per_run():
    figure = draw_distance([synthetic_run(5), synthetic_run(3)], labels=["A", "B"])
    for step in figure.layout.sliders[0].steps:
        visible = step.args[0]["visible"]
        shown = [t.name for t, v in zip(figure.data, visible, strict=True) if v]
        assert [name[0] for name in shown] == ["A", "B"]


def test_a_run_without_the_checkpoint_says_which_one_it_shows_instead():
    figure = draw_distance([synthetic_run(5), synthetic_run(3)], labels=["A", "B"])
    assert figure.data[-1].name == "B (at 200)"


def test_cells_that_are_not_finite_are_black_and_unmeasured_ones_blank():
    run = damaged(damaged(synthetic_run(4, steps=5), 2, 1, slice(3, None)), 0, 3)
    figure = draw_heatmap(run)
    loss, black = figure.data[0], figure.data[1]
    expected = np.zeros((5, 4), dtype=bool)
    expected[3:, 1] = True
    np.testing.assert_array_equal(np.isfinite(np.array(black.z, dtype=float)), expected)
    blank = np.isnan(np.array(loss.z, dtype=float))
    assert blank[:, 3].all()
    assert {"not finite", "not measured"} <= {t.name for t in figure.data}


def test_a_cell_shows_the_loss_of_its_checkpoint_and_step():
    run = synthetic_run(4, steps=5)
    loss = np.array(draw_heatmap(run).data[0].z, dtype=float)
    np.testing.assert_allclose(loss, run["loss"][:, 0, :].T, rtol=1e-6)


def test_checkpoints_are_drawn_in_order_of_training_whatever_their_order_in_the_file():
    run = synthetic_run(4, noise=0.5)
    turned = changed(
        run,
        **{
            path.replace("/", "__"): run[path][::-1]
            for path, variable in run.variables.items()
            if variable.dims[0] == "checkpoint"
        },
    )
    for kind in (draw_bands, draw_smoothness, draw_line, draw_distance):
        assert numbers(kind([run])) == numbers(kind([turned]))
        first, other = kind([run]).data[0], kind([turned]).data[0]
        np.testing.assert_array_equal(first.y, other.y)


def test_the_contour_lies_the_right_way_round():
    run = with_measures(synthetic_run(2))
    contour = next(t for t in draw_contour(run).data if t.type == "contour")
    x, y = np.array(contour.x, dtype=float), np.array(contour.y, dtype=float)
    assert np.array(contour.z).shape == (len(y), len(x))
    heights = 10.0 ** np.array(contour.z, dtype=float)
    expected = 0.01 + x[None, :] ** 2 + 10 * (y[:, None] - x[None, :] ** 2) ** 2
    np.testing.assert_allclose(heights, expected, rtol=1e-3)


def test_crosses_are_the_step_sizes_that_diverged():
    run = with_measures(synthetic_run(2, steps=6))
    figure = draw_learning_rate_range([run], labels=["A"])
    crosses = next(t for t in figure.data if t.name == "A: diverged")
    np.testing.assert_allclose(crosses.x, run["step_size"][-1, -1:], rtol=1e-6)


def test_histograms_add_up_to_one_per_checkpoint():
    run = with_measures(synthetic_run(4))
    (trace,) = draw_histograms([run], layer="features.2").data
    np.testing.assert_allclose(np.array(trace.z, dtype=float).sum(axis=0), 1.0, rtol=1e-5)
