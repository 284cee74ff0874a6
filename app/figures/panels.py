"""Small multiples: panels in three columns over one axis, so that zooming into one zooms all of them. Pure.

What each panel shows is handed in; this file knows places, titles and axes, and nothing about learning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

COLUMNS = ((0.0, 0.29), (0.355, 0.645), (0.71, 1.0))
"""Domains of the columns, in parts of the figure: room between them for ticks."""

PANEL_PX, BETWEEN_PX, ABOVE_PX, BELOW_PX = 132, 58, 42, 42
"""Height of a panel, from one to the next below (its ticks and the title of the next), and above and below all."""

TITLE_PX = 14
"""From a panel to the middle of its title."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of a panel."""

    name: str
    """Head of its column in the table twin."""
    x: Sequence[float]
    """Positions."""
    y: Sequence[float | None]
    """Values; a gap stays a gap."""
    colours: tuple[str, str]
    """On a light page and on a dark one."""
    faint: bool = False
    """Whether it only lies behind another one."""
    markers: bool = False
    """Whether its points are marked."""
    dash: str = "solid"
    """As Plotly names it."""
    told: str = ""
    """Written at its newest point, so that no legend is needed."""
    place: str = "top left"
    """Of what is told, beside that point."""
    customdata: Sequence[float] | None = None
    """Sent back when a point is clicked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One small chart."""

    name: str
    """Its title."""
    latest: str
    """What its title says of the newest value."""
    series: Sequence[Series]
    """Its lines; none draws an empty panel."""
    axis: dict[str, Any] = field(default_factory=dict)
    """What its y axis has of its own."""


def suffix(panel: int) -> str:
    """Of an axis, as Plotly numbers them: "" for the first panel."""
    return "" if panel == 1 else str(panel)


def line(panel: int, series: Series) -> dict[str, Any]:
    """A trace on panel number `panel`, counted from 1."""
    colour, dark = series.colours
    known = sum(value is not None for value in series.y)
    # a single point has no line, and would be invisible
    mode = "markers" if known == 1 else "lines+markers" if series.markers else "lines"
    on = suffix(panel)
    trace: dict[str, Any] = {
        "xaxis": f"x{on}", "yaxis": f"y{on}", "type": "scatter", "x": list(series.x), "y": list(series.y),
        "name": series.name, "mode": mode + ("+text" if series.told else ""), "opacity": 0.35 if series.faint else 1.0,
        "line": {"color": colour, "width": 1.2 if series.faint else 2.0, "dash": series.dash},
        "marker": {"color": colour, "size": 6},
        "meta": {"dark": {"line": {"color": dark}, "marker": {"color": dark}, "textfont": {"color": dark}}},
        "hovertemplate": "%{y:.4g}",
    }  # fmt: skip
    if series.customdata is not None:
        trace["customdata"] = list(series.customdata)
    if series.told:
        trace["text"] = [*[""] * (len(series.x) - 1), series.told]
        trace["textposition"] = series.place
        trace["textfont"] = {"color": colour, "size": 12}
    return trace


def panels(
    shown: Sequence[Panel],
    *,
    axis: dict[str, Any],
    title: str,
    index: str,
    revision: str,
    legend: Sequence[dict[str, str]] = (),
) -> go.Figure:
    """A figure of these panels, row by row.

    axis: what all x axes have in common. title: below the lowest panels. index: head of the table's first column.
    revision: a zoom is kept while it stays the same. legend: name, colour and shape of what is said above all of them.
    """
    rows = -(-len(shown) // len(COLUMNS))
    inner = rows * PANEL_PX + (rows - 1) * BETWEEN_PX
    layout: dict[str, Any] = {
        "height": inner + ABOVE_PX + BELOW_PX,
        "margin": {"l": 52, "r": 14, "t": ABOVE_PX, "b": BELOW_PX},
        "showlegend": False,
        "hovermode": "x unified",
        "uirevision": revision,
        "meta": {"index": index, "legend": list(legend)},
        "annotations": [],
    }
    for number, panel in enumerate(shown, start=1):
        on, row = suffix(number), (number - 1) // len(COLUMNS)
        top = 1 - row * (PANEL_PX + BETWEEN_PX) / inner
        lowest = number + len(COLUMNS) > len(shown)
        layout[f"xaxis{on}"] = {
            "domain": list(COLUMNS[(number - 1) % len(COLUMNS)]), "anchor": f"y{on}", "zeroline": False,
            "showgrid": False, "ticks": "outside", "ticklen": 4, **({} if number == 1 else {"matches": "x"}),
            **({"title": {"text": title, "standoff": 4}} if lowest else {}), **axis,
        }  # fmt: skip
        layout[f"yaxis{on}"] = {
            "domain": [max(0.0, top - PANEL_PX / inner), top], "anchor": f"x{on}", "zeroline": False, "nticks": 4,
            "fixedrange": True, **panel.axis,
        }  # fmt: skip
        layout["annotations"].append(
            {
                "text": f"<b>{panel.name}</b>  {panel.latest}", "xref": f"x{on} domain", "yref": f"y{on} domain",
                "x": 0, "y": 1, "yshift": TITLE_PX, "xanchor": "left", "yanchor": "middle", "showarrow": False,
                "font": {"size": 13},
            }
        )  # fmt: skip
    traces = [line(number, series) for number, panel in enumerate(shown, start=1) for series in panel.series]
    return go.Figure({"data": traces, "layout": layout})
