"""How figures look: one template, and one style per run that survives grey printing."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

FONT = "Inter, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
FONT_SIZE = 13
INK = "#1b1f24"
MUTED = "#57606a"
GRID = "#e3e6ea"
NOT_MEASURED_COLOUR = "#eceef0"
NOT_FINITE_COLOUR = "#1b1f24"
COLOURS = ("#0072b2", "#c44e00", "#00795a", "#a8447f", "#8a6a00", "#3d8fbf", "#5b5b5b", "#7a3ea8")
"""After Okabe and Ito (2008), darkened so that thin lines keep a contrast of 4.5 on white."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "star")
SEQUENTIAL = "Cividis"
"""Sequential colours that are the same to colour-blind readers and ordered in grey."""
LONGEST_LABEL = 48
MOST_DECADES_LINEAR = 2.0
MOST_MARKERS = 60
"""Points in a line above which markers would merge into it."""


@dataclass(frozen=True)
class Style:
    """How one run is drawn everywhere.

    Attributes:
        colour: of its lines.
        dash: of its lines, so that it can be told apart without colour.
        symbol: of its markers.
    """

    colour: str
    dash: str
    symbol: str

    def fill(self, opacity: float = 0.18) -> str:
        """Return the colour as a translucent fill."""
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},{opacity:g})"

    def line(self, width: float = 2.0, dash: str | None = None) -> dict[str, Any]:
        """Return it as the attributes of a line."""
        return {"color": self.colour, "width": width, "dash": dash or self.dash}


def style_of(index: int) -> Style:
    """Return the style of the run at that place in the order of the runs."""
    return Style(
        COLOURS[index % len(COLOURS)], DASHES[index % len(DASHES)], SYMBOLS[index % len(SYMBOLS)]
    )


def neutral(text: object, limit: int = LONGEST_LABEL) -> str:
    """Return text that plotly shows as it is: no markup, no template, no line break, not too long.

    Plotly reads a small HTML in titles, legends, ticks and hover texts, and ``%{…}`` in hover
    templates; both are written as character references here.

    Example:
        >>> neutral("<b>run</b> & %{x}")
        '&lt;b&gt;run&lt;/b&gt; &amp; &#37;{x}'
    """
    return html.escape(shortened(text, limit), quote=False).replace("%", "&#37;")


def shortened(text: object, limit: int = LONGEST_LABEL) -> str:
    """Return text on one line, without control characters, its middle left out if it is long."""
    line = re.sub(r"[\s\x00-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]+", " ", str(text))
    line = line.strip()
    if len(line) <= limit:
        return line
    head = (limit - 1) // 2
    return f"{line[:head]}…{line[len(line) - (limit - 1 - head) :]}"


def compact(values: Any) -> np.ndarray:
    """Return finite numbers at half the size where that loses nothing to see, NaN for the others.

    Numbers that float32 has no room for stay float64. Non-finite points are marked by the
    figures themselves, never drawn.
    """
    values = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(values)
    values = np.where(finite, values, np.nan)
    magnitudes = np.abs(values[finite & (values != 0)])
    small = not magnitudes.size or (magnitudes.min() > 1e-37 and magnitudes.max() < 1e37)
    return np.asarray(values, dtype=np.float32 if small else np.float64)


@dataclass(frozen=True)
class Scale:
    """How an axis is divided.

    Attributes:
        kind: ``linear`` or ``log``.
        ticks: where labels stand on a log axis; empty leaves it to plotly.
    """

    kind: str = "linear"
    ticks: tuple[float, ...] = ()


LINEAR = Scale()


def scale_of(*arrays: Any) -> Scale:
    """Return a log scale for positive numbers over more than two decades, else a linear one."""
    values = np.concatenate([np.empty(0), *(np.ravel(np.asarray(a, float)) for a in arrays)])
    values = values[np.isfinite(values)]
    if not values.size or values.min() <= 0:
        return LINEAR
    low, high = float(values.min()), float(values.max())
    wide = np.log10(high) - np.log10(low) > MOST_DECADES_LINEAR
    return log_scale(low, high) if wide else LINEAR


def log_scale(low: float, high: float) -> Scale:
    """Return a log scale with labels at powers of ten, and at 2 and 5 where there is room.

    Plotly's own labels at 2 and 5 are small and out of line.
    """
    first, last = np.floor(np.log10(np.array([low / 2, high * 2])))
    every = max(1, int(np.ceil((last - first) / 8)))
    decades = np.log10(high / low)
    steps = (1, 2, 3, 4, 5, 7) if decades <= 1 else (1, 2, 5) if decades <= 3 else (1,)
    powers = np.arange(first, last + 1, every)
    return Scale("log", tuple(float(f"{step}e{power:.0f}") for power in powers for step in steps))


def mode_of(points: int) -> str:
    """Return how a line of that many points is drawn."""
    return "lines+markers" if points <= MOST_MARKERS else "lines"


def new_figure(title: str, panels: int = 1, *, height: int = 420, **options: Any) -> go.Figure:
    """Return an empty figure of panels below each other that share their horizontal axis.

    Args:
        title: what it shows; escaped here.
        panels: how many.
        height: in pixels.
        options: of `plotly.subplots.make_subplots`, e.g. ``cols``.
    """
    settings = {"shared_xaxes": True, "vertical_spacing": 0.06, **options}
    figure = make_subplots(rows=panels, **settings)
    dress(figure, title, height)
    return figure


def dress(figure: go.Figure, title: str, height: int) -> None:
    """Give a figure the template, its title (escaped here) and its height in pixels."""
    figure.update_layout(
        template=TEMPLATE, height=height, title_text=neutral(title, 120), meta={"title": title}
    )


def log_ticks(finite: np.ndarray) -> dict[str, object]:
    """Return colour-bar ticks at powers of ten for colours that are logarithms."""
    low, high = np.log10(finite.min()), np.log10(finite.max())
    every = max(1, int(np.ceil((high - low) / 6)))
    powers = np.arange(np.ceil(low), high + 1e-9, every)
    texts = [f"{10.0**power:g}" for power in powers]
    return {"tickvals": powers.tolist(), "ticktext": texts}


def name_axis(
    figure: go.Figure, axis: str, title: str, scale: Scale = LINEAR, row: int = 1
) -> None:
    """Give the x or y axis of a panel its title (escaped already) and scale."""
    update = figure.update_xaxes if axis == "x" else figure.update_yaxes
    update(title_text=title, type=scale.kind, row=row, col=1)
    if scale.ticks:
        texts = [f"{tick:g}" for tick in scale.ticks]
        update(tickvals=scale.ticks, ticktext=texts, row=row, col=1)


def _axis() -> dict[str, Any]:
    return {
        "showline": True,
        "linecolor": MUTED,
        "linewidth": 1,
        "ticks": "outside",
        "tickcolor": MUTED,
        "ticklen": 4,
        "gridcolor": GRID,
        "zeroline": False,
        "automargin": True,
        "exponentformat": "e",
        "minexponent": 6,
        "title": {"standoff": 10, "font": {"size": FONT_SIZE}},
        "tickfont": {"size": 12},
    }


TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": FONT_SIZE, "color": INK},
        "title": {"x": 0, "xanchor": "left", "xref": "paper", "font": {"size": 16}},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "colorway": list(COLOURS),
        "margin": {"l": 70, "r": 24, "t": 56, "b": 56},
        "xaxis": _axis(),
        "yaxis": _axis(),
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "font": {"size": 12},
            "bgcolor": "rgba(255,255,255,0)",
            "tracegroupgap": 0,
            "itemwidth": 40,
        },
        "hoverlabel": {"font": {"size": 12, "family": FONT}, "bgcolor": "#ffffff", "align": "left"},
        "hovermode": "closest",
        "coloraxis": {"colorscale": SEQUENTIAL},
    }
)
