"""What a split is predicted to bring: throughput and idle time over the splits, and points of split and staleness as a
map. Pure; nothing in these figures was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go

from app import palette
from app.clock import count

SPLITS_PX = 380
MARGINS = {"l": 72, "r": 20, "t": 26, "b": 44}

PANELS = ((0.46, 1.0), (0.0, 0.3))
"""Domains of throughput and idle share, the first above."""

ROLLOUT, TRAIN = palette.COLOURS["rollout"], palette.COLOURS["train"]
LIGHT_ROLLOUT = palette.COLOURS["rollout_aux"]
BORROWING, BORROWING_DARK = "#0C6B72", "#4FC3B8"
BEST = "#C8330C"

RATE_LIGHT = ("#F4F6FB", "#C9D3F3", "#8FA8F0")
RATE_DARK = ("#1B2029", "#22357A", "#3D5BC4")
"""Throughput, lowest to highest: pale, or deep on a dark page, so that a number is read on every one of them."""

ROW_PX = 44
MOST_BARS = 80
"""Splits beyond which a bar is thinner than its gap: then idle time is a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPoint:
    """One feasible split, tokens/s."""

    name: str
    """rollout:train"""
    rollout_devices: int
    rollout: float
    """What the RollPool reaches alone."""
    train: float
    """What the TrainPool reaches alone."""
    borrowing: float | None
    """With borrowing; None where none is predicted."""
    idle: float
    """Structural share of device time without borrowing."""
    verdict: str
    """best, best with borrowing, both, or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point of the map that stands out."""

    column: int
    row: int
    kind: str
    """best, edge or chosen."""


def splits(points: Sequence[SplitPoint]) -> go.Figure:
    """Throughput that each split is predicted to reach, above its structural idle share; fewest rollout devices
    first."""
    x = [point.rollout_devices for point in points]
    names = [point.name for point in points]
    traces = [
        _line(x, [p.rollout for p in points], names, "RollPool alone", ROLLOUT, dash="dot", dark="#8FA8F0"),
        _line(x, [p.train for p in points], names, "TrainPool alone", TRAIN, dash="dot"),
        _line(x, [min(p.rollout, p.train) for p in points], names, "without borrowing", "#22262E", dark="#E6E9EF"),
    ]
    if any(point.borrowing is not None for point in points):
        borrowing = [p.borrowing for p in points]
        traces.append(_line(x, borrowing, names, "with borrowing", BORROWING, dash="dash", dark=BORROWING_DARK))
    best = [p for p in points if p.verdict]
    traces.append(
        {
            "type": "scatter", "mode": "markers", "x": [p.rollout_devices for p in best],
            "y": [_reached(p) for p in best], "name": "best",
            "marker": {"symbol": "star", "size": 15, "color": BEST, "line": {"width": 1, "color": "#FFFFFF"}},
            "text": [f"<b>{p.name}</b> {p.verdict}" for p in best],
            "hovertemplate": "%{text}<br>%{y:,.0f} tokens/s, predicted<extra></extra>",
        }
    )  # fmt: skip
    traces.append(_idle(x, [p.idle for p in points], names))
    legend = [
        {"name": trace["name"], "colour": trace["line"]["color"], "shape": "box"}
        for trace in traces
        if trace.get("mode") == "lines+markers" and trace.get("yaxis") is None
    ]
    reach = max((y for t in traces[: len(traces) - 2] for y in t["y"] if y is not None), default=1.0)
    axis = _split_axis(points)
    layout: dict[str, Any] = {
        "height": SPLITS_PX,
        "margin": MARGINS,
        "showlegend": False,
        "dragmode": False,
        "hovermode": "closest",
        "bargap": 0.25,
        "uirevision": "splits",
        "meta": {"legend": [*legend, {"name": "best", "colour": BEST, "shape": "diamond"}]},
        "xaxis": {**axis, "anchor": "y", "showticklabels": False},
        "xaxis2": {**axis, "anchor": "y2", "matches": "x", "title": {"text": "rollout:train devices", "standoff": 6}},
        "yaxis": {
            "domain": list(PANELS[0]), "range": [0, reach * 1.1], "tickformat": "~s", "nticks": 5, "fixedrange": True,
            "zeroline": False,
        },
        "yaxis2": {
            "domain": list(PANELS[1]), "range": [0, 1], "tickformat": ".0%", "tickvals": [0, 0.5, 1],
            "fixedrange": True, "zeroline": False,
        },
        "annotations": [_title("<b>Tokens/s</b>, predicted", "y"), _title("<b>Structural idle</b>, predicted", "y2")],
    }  # fmt: skip
    return go.Figure({"data": traces, "layout": layout})


def _reached(point: SplitPoint) -> float:
    alone = min(point.rollout, point.train)
    return point.borrowing if point.borrowing is not None and point.verdict == "best with borrowing" else alone


def _line(
    x: Sequence[int],
    y: Sequence[float | None],
    names: Sequence[str],
    name: str,
    colour: str,
    *,
    dash: str = "solid",
    dark: str | None = None,
) -> dict[str, Any]:
    swap = {} if dark is None else {"meta": {"dark": {"line": {"color": dark}, "marker": {"color": dark}}}}
    return {
        "type": "scatter", "mode": "lines+markers", "x": list(x), "y": list(y), "text": list(names), "name": name,
        "line": {"color": colour, "width": 2, "dash": dash}, "marker": {"size": 4, "color": colour}, **swap,
        "hovertemplate": "%{text}<br>%{fullData.name} %{y:,.0f} tokens/s, predicted<extra></extra>",
    }  # fmt: skip


def _idle(x: Sequence[int], idle: Sequence[float], names: Sequence[str]) -> dict[str, Any]:
    common: dict[str, Any] = {
        "x": list(x), "y": list(idle), "text": list(names), "name": "structural idle", "xaxis": "x2", "yaxis": "y2",
        "hovertemplate": "%{text}<br>structural idle %{y:.1%}, predicted<extra></extra>",
    }  # fmt: skip
    if len(x) > MOST_BARS:
        return {**common, "type": "scatter", "mode": "lines", "line": {"color": BEST, "width": 2}, "fill": "tozeroy"}
    apart = min((b - a for a, b in pairwise(x)), default=1)
    width = min(apart * 0.7, max(1, x[-1] - x[0]) * 0.12) if len(x) > 1 else 0.2
    return {
        **common,
        "type": "bar",
        "width": width,
        "textposition": "none",
        "marker": {"color": BEST, "line": {"width": 0}},
    }


def _split_axis(points: Sequence[SplitPoint]) -> dict[str, Any]:
    every = max(1, -(-len(points) // 12))
    ticks = list(points)[::every]
    room = max(1.0, (points[-1].rollout_devices - points[0].rollout_devices) * 0.08) if points else 1.0
    return {
        "range": [points[0].rollout_devices - room, points[-1].rollout_devices + room] if points else [0, 1],
        "tickvals": [p.rollout_devices for p in ticks], "ticktext": [p.name for p in ticks], "showgrid": False,
        "zeroline": False, "fixedrange": True,
    }  # fmt: skip


def _title(text: str, axis: str) -> dict[str, Any]:
    return {
        "text": text, "xref": "paper", "yref": f"{axis} domain", "x": 0, "y": 1, "yshift": 12, "xanchor": "left",
        "yanchor": "middle", "showarrow": False, "font": {"size": 13},
    }  # fmt: skip


def points_map(
    values: Sequence[Sequence[float | None]],
    columns: Sequence[str],
    rows: Sequence[float],
    *,
    measure: str,
    marks: Sequence[Mark],
    source: str,
) -> go.Figure:
    """Split (columns) times staleness (rows, least below), a number in every cell that is known.

    measure: "tokens/s" or "idle"; source: what the numbers are, such as "simulated", told in every hover.
    """
    idle = measure == "idle"
    known = [value for row in values for value in row if value is not None]
    low, high = (0.0, max(0.02, *known)) if idle and known else (min(known, default=0.0), max(known, default=1.0))
    light, dark = (palette.HEAT_LIGHT, palette.HEAT_DARK) if idle else (RATE_LIGHT, RATE_DARK)
    written = "%{z:.1%} idle" if idle else "%{z:,.0f} tokens/s"
    cells = {
        "type": "heatmap", "z": [list(row) for row in values], "x": list(range(len(columns))),
        "y": list(range(len(rows))), "zmin": low, "zmax": high if high > low else low + 1, "xgap": 2, "ygap": 2,
        "colorscale": _scale(light), "meta": {"dark": {"colorscale": _scale(dark)}}, "showscale": False,
        "hoverongaps": False, "name": measure, "texttemplate": "%{text}", "textfont": {"size": 12},
        "text": [["" if v is None else f"{v:.0%}" if idle else count(v) for v in row] for row in values],
        "customdata": [[f"{split} at staleness {s:g}" for split in columns] for s in rows],
        "hovertemplate": f"%{{customdata}}<br><b>{written}</b>, {source}<extra></extra>",
    }  # fmt: skip
    layout: dict[str, Any] = {
        "height": ROW_PX * len(rows) + 74,
        "margin": {"l": 72, "r": 16, "t": 10, "b": 52},
        "showlegend": False,
        "dragmode": False,
        "uirevision": "points",
        "meta": {"legend": _map_legend(marks)},
        "xaxis": {
            "tickvals": list(range(len(columns))), "ticktext": list(columns), "range": [-0.5, len(columns) - 0.5],
            "showgrid": False, "zeroline": False, "fixedrange": True,
            "title": {"text": "rollout:train devices", "standoff": 8},
        },
        "yaxis": {
            "tickvals": list(range(len(rows))), "ticktext": [f"{s:g}" for s in rows], "range": [-0.5, len(rows) - 0.5],
            "showgrid": False, "zeroline": False, "fixedrange": True, "title": {"text": "staleness", "standoff": 8},
        },
    }  # fmt: skip
    return go.Figure({"data": [cells, *_marks(marks)], "layout": layout})


MARKS = {
    "chosen": ("square-open", 34, "#C8330C", "#F0764F", "chosen"),
    "best": ("star", 11, "#FDAF16", "#FDAF16", "fastest"),
    "edge": ("circle-open", 9, "#0C6B72", "#4FC3B8", "worth its staleness"),
}
"""Kind -> symbol, size, colour on a light and on a dark page, name."""


def _marks(marks: Sequence[Mark]) -> list[dict[str, Any]]:
    """In the corners of their cells, the chosen one around its number."""
    found = []
    for kind, (symbol, size, light, dark, name) in MARKS.items():
        here = [mark for mark in marks if mark.kind == kind]
        if not here:
            continue
        dx, dy = {"chosen": (0.0, 0.0), "best": (0.36, 0.26), "edge": (-0.36, 0.26)}[kind]
        found.append(
            {
                "type": "scatter", "mode": "markers", "x": [m.column + dx for m in here],
                "y": [m.row + dy for m in here], "name": name, "hoverinfo": "skip",
                "marker": {"symbol": symbol, "size": size, "color": light, "line": {"width": 2, "color": light}},
                "meta": {"dark": {"marker": {"color": dark, "line": {"width": 2, "color": dark}}}},
            }
        )  # fmt: skip
    return found


def _map_legend(marks: Sequence[Mark]) -> list[dict[str, str]]:
    kinds = {mark.kind for mark in marks}
    return [
        {"name": name, "colour": light, "shape": "diamond" if kind == "best" else "box"}
        for kind, (_, _, light, _, name) in MARKS.items()
        if kind in kinds
    ]


def _scale(colours: Sequence[str]) -> list[list[object]]:
    return [[i / (len(colours) - 1), colour] for i, colour in enumerate(colours)]
