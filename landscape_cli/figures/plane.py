"""Two-dimensional loss surfaces: contours, and the same in three dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from landscape_cli.figures import theme
from landscape_cli.runs import Run

LEVELS = 24


@dataclass(frozen=True)
class _Surface:
    """A surface as it is drawn: heights are logarithms where the loss spans decades."""

    x: np.ndarray
    y: np.ndarray
    loss: np.ndarray
    heights: np.ndarray
    logarithmic: bool
    names: tuple[str, str]

    @classmethod
    def of(cls, run: Run, checkpoint: int) -> _Surface:
        loss = np.asarray(run["plane/loss"][checkpoint], dtype=np.float64)
        finite = loss[np.isfinite(loss)]
        logarithmic = theme.scale_of(finite).kind == "log"
        with np.errstate(divide="ignore", invalid="ignore"):
            heights = np.log10(loss) if logarithmic else loss
        names = str(run.settings.get("plane") or "first direction,second direction").split(",", 1)
        return cls(
            run["plane/plane_x"],
            run["plane/plane_y"],
            loss,
            heights,
            logarithmic,
            (names[0], names[-1]),
        )

    def bar(self) -> dict[str, object]:
        """Return the colour bar, in units of the loss."""
        finite = self.loss[np.isfinite(self.loss)]
        ticks = theme.log_ticks(finite) if self.logarithmic and finite.size else {}
        return {"title": {"text": "loss"}, "thickness": 14, "outlinewidth": 0, **ticks}


def draw_contour(run: Run, *, label: str | None = None, checkpoint: int = -1) -> go.Figure:
    """Draw the loss over a plane as contours, with the trajectory on it where there is one.

    Levels are evenly spaced on a log scale where the loss spans more than two decades. Points
    that are not finite are black.

    Args:
        run: a run with ``/plane``.
        label: its name.
        checkpoint: index of the surface.

    Reference:
        Li et al. (2018), "Visualizing the loss landscape of neural nets".
    """
    surface = _Surface.of(run, checkpoint)
    figure = theme.new_figure(f"{label or run.label}: loss over a plane", height=560)
    _add_not_finite(figure, surface)
    if np.isfinite(surface.loss).any():  # plotly has no colours for a map of nothing
        _add_contours(figure, surface)
    _add_trajectory(figure, run)
    theme.name_axis(figure, "x", f"along {theme.neutral(surface.names[0])}")
    theme.name_axis(figure, "y", f"along {theme.neutral(surface.names[1])}")
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(showgrid=False)
    return figure


def _add_contours(figure: go.Figure, surface: _Surface) -> None:
    figure.add_trace(
        go.Contour(
            x=theme.compact(surface.x),
            y=theme.compact(surface.y),
            z=theme.compact(surface.heights),
            customdata=theme.compact(surface.loss),
            colorscale=theme.SEQUENTIAL,
            ncontours=LEVELS,
            line={"width": 0.7, "color": "rgba(255,255,255,0.6)"},
            colorbar=surface.bar(),
            connectgaps=False,
            hovertemplate="loss %{customdata:.4g}<br>(%{x:.3g}, %{y:.3g})<extra></extra>",
        )
    )


def draw_surface(run: Run, *, label: str | None = None, checkpoint: int = -1) -> go.Figure:
    """Draw the loss over a plane as a surface in three dimensions (needs WebGL to be shown).

    Args:
        run: a run with ``/plane``.
        label: its name.
        checkpoint: index of the surface.
    """
    surface = _Surface.of(run, checkpoint)
    figure = go.Figure(
        go.Surface(
            x=theme.compact(surface.x),
            y=theme.compact(surface.y),
            z=theme.compact(surface.heights),
            customdata=theme.compact(surface.loss),
            colorscale=theme.SEQUENTIAL,
            colorbar=surface.bar(),
            hovertemplate="loss %{customdata:.4g}<br>(%{x:.3g}, %{y:.3g})<extra></extra>",
        )
    )
    theme.dress(figure, f"{label or run.label}: loss over a plane, in three dimensions", 620)
    figure.update_layout(scene=_scene(surface))
    return figure


def _scene(surface: _Surface) -> dict[str, object]:
    finite = surface.loss[np.isfinite(surface.loss)]
    ticks = theme.log_ticks(finite) if surface.logarithmic and finite.size else {}
    return {
        "xaxis": {"title": {"text": theme.neutral(surface.names[0], 24)}},
        "yaxis": {"title": {"text": theme.neutral(surface.names[1], 24)}},
        "zaxis": {"title": {"text": "loss"}, **ticks},
        "aspectmode": "cube",
        "camera": {"eye": {"x": 1.5, "y": -1.5, "z": 1.0}},
    }


def _add_not_finite(figure: go.Figure, surface: _Surface) -> None:
    bad = ~np.isfinite(surface.loss)
    if not bad.any():
        return
    colour = theme.NOT_FINITE_COLOUR
    figure.add_trace(
        go.Heatmap(
            x=theme.compact(surface.x),
            y=theme.compact(surface.y),
            z=np.where(bad, np.float32(1), np.float32(np.nan)),
            colorscale=[[0, colour], [1, colour]],
            showscale=False,
            hovertemplate="not finite<extra></extra>",
        )
    )


def _add_trajectory(figure: go.Figure, run: Run) -> None:
    if "plane/trajectory_x" not in run or "plane/trajectory_y" not in run:
        return
    order = np.argsort(run["training_step"], kind="stable")
    x, y = (theme.compact(run[f"plane/trajectory_{axis}"][order]) for axis in "xy")
    # A dark line on a light one is seen on every colour of the map.
    under = {"color": "#ffffff", "width": 5}
    figure.add_trace(
        go.Scatter(x=x, y=y, mode="lines", line=under, showlegend=False, hoverinfo="skip")
    )
    figure.add_trace(
        go.Scatter(
            x=x,
            y=y,
            mode="lines+markers",
            line={"color": theme.INK, "width": 2},
            marker={"size": 7, "color": "#ffffff", "line": {"color": theme.INK, "width": 1.5}},
            text=[theme.neutral(name) for name in run["checkpoint"][order]],
            name="trajectory",
            showlegend=True,
            hovertemplate="%{text}<extra></extra>",
        )
    )
