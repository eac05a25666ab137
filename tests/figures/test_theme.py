"""Text, numbers and scales as figures may have them."""

from __future__ import annotations

import numpy as np
import pytest

from landscape_cli.figures import theme


@pytest.mark.parametrize(
    "text", ["<b>x</b>", "<a href='http://x'>y</a>", "a<br>b", "%{x}", "&lt;", "</script>", "<sub>"]
)
def test_neutral_text_has_neither_markup_nor_templates(text):
    neutral = theme.neutral(text)
    assert "<" not in neutral
    assert "%{" not in neutral


def test_neutral_text_is_one_line_without_control_or_direction_characters():
    assert theme.neutral("a\nb\u202ec\x00d\u2028e") == "a b c d e"


def test_long_text_loses_its_middle():
    short = theme.shortened("a" * 40 + "b" * 40, 21)
    assert (len(short), short[0], short[-1]) == (21, "a", "b")


def test_compact_numbers_keep_their_size_and_lose_what_is_not_finite():
    values = theme.compact([1.0, np.inf, -np.inf, np.nan, 1e14])
    assert values.dtype == np.float32
    assert np.isfinite(values).tolist() == [True, False, False, False, True]


@pytest.mark.parametrize("value", [1e200, 1e-200])
def test_numbers_beyond_single_precision_stay_double(value):
    assert theme.compact([1.0, value]).tolist() == [1.0, value]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.0, 99.0], "linear"),
        ([1.0, 101.0], "log"),
        ([0.0, 1e6], "linear"),
        ([-1.0, 1e6], "linear"),
        ([np.nan, np.inf], "linear"),
        ([], "linear"),
        ([np.nan, 1e-3, 1e3], "log"),
    ],
)
def test_positive_values_over_two_decades_get_a_log_scale(values, kind):
    assert theme.scale_of(values).kind == kind


@pytest.mark.parametrize(("low", "high"), [(0.5, 4.0), (1e-3, 1e2), (1e-12, 1e14), (0.9, 1.1)])
def test_a_log_axis_has_a_readable_number_of_labels_within_its_span(low, high):
    ticks = np.array(theme.log_scale(low, high).ticks)
    inside = ((ticks >= low / 2) & (ticks <= 2 * high)).sum()
    assert 2 <= inside <= 16


def test_the_first_runs_differ_in_colour_dash_and_symbol():
    styles = [theme.style_of(index) for index in range(6)]
    for name in ("colour", "dash", "symbol"):
        assert len({getattr(style, name) for style in styles}) == 6


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", [*theme.COLOURS, theme.INK, theme.MUTED])
def test_colours_stand_out_from_white(colour):
    """WCAG asks 3:1 of graphics and 4.5:1 of text."""
    least = 4.5 if colour in (theme.INK, theme.MUTED) else 3.0
    assert 1.05 / (_luminance(colour) + 0.05) >= least


def test_no_font_of_the_template_is_under_twelve_pixels():
    def sizes(value, name=""):
        if isinstance(value, dict):
            for key, item in value.items():
                yield from sizes(item, key)
        elif name == "size":
            yield value

    found = list(sizes(theme.TEMPLATE.layout.to_plotly_json()))
    assert len(found) > 4
    assert min(found) >= 12
