"""Runs beside each other: reward and idle time over a common axis, lost time by cause, structural and residual bubbles,
idle time against staleness. Pure: what is drawn comes as names and numbers.

A run has one colour in every figure of a comparison, and beyond the colours another dash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from app import palette
from storage.words import IDLE_CAUSES

RUN_COLOURS = ("#4673D1", "#DE5A26", "#14907F", "#B07D12", "#A35CC9", "#5B8F35", "#858B98", "#CF5590")
"""One a run, of the middle brightness that is seen on a light page and on a dark one, so that the legend need not be
two; a ninth run takes the first colour and another dash."""

DASHES = ("solid", "dash", "dot", "dashdot")

OUTLINE = "rgba(128,132,142,0.6)"
"""Of bars, so that the palest and the darkest are seen on either page."""

MIN_SHARE = 0.0005
"""A cause below half a per mille of every run's time is noise of the clocks."""

NAME_CHARS = 40
"""Longest name beside a bar or a line; longer ones lose their middle, for ids end with what tells them apart."""

BAR_PX, LINES_PX, SCATTER_PX = 34, 320, 340

PLOT_PX, CHAR_PX, LINE_PX = (400, 270), 6.2, 15
"""About the size of the scatter's plot on a narrow screen, and of its labels: names are kept apart by it."""

STRUCTURAL_COLOUR, RESIDUAL_COLOUR = "#7A1F00", "#E4742A"

MARKS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
"""Of arms in the scatter, so that none is told by its colour alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A line of one run."""

    name: str
    """The run."""
    x: Sequence[float]
    y: Sequence[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One run's amounts, a part each."""

    name: str
    """The run."""
    parts: Mapping[str, float]
    """Cause, or kind of bubble, -> amount in the unit of the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A run in the scatter."""

    name: str
    """The run."""
    staleness: float
    idle: float
    """Share, 0 to 1."""
    arm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A ratio with its interval."""

    name: str
    """The configuration."""
    mean: float
    low: float | None = None
    high: float | None = None
    """None where there are too few repeats for an interval."""


def short(name: str, chars: int = NAME_CHARS) -> str:
    """A name of at most so many characters, its beginning and its end kept."""
    if len(name) <= chars:
        return name
    head = (chars - 1) * 2 // 5
    return f"{name[:head]}…{name[-(chars - 1 - head) :]}"


def colour_of(index: int) -> str:
    """Of the run with this number."""
    return RUN_COLOURS[index % len(RUN_COLOURS)]


def lines(
    runs: Sequence[Drawn], *, x_title: str, y_format: str, key: str, y_range: tuple[float, float] | None = None
) -> go.Figure:
    """A line a run. `key`: what it is a figure of, so that a zoom lives as long as the axes mean the same."""
    traces = []
    for index, run in enumerate(runs):
        colour = colour_of(index)
        known = sum(value is not None for value in run.y)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines" if known > 1 else "markers",
                "x": list(run.x),
                "y": list(run.y),
                "name": short(run.name),
                "line": {"color": colour, "width": 2, "dash": DASHES[index // len(RUN_COLOURS) % len(DASHES)]},
                "marker": {"color": colour, "size": 7},
                "hovertemplate": f"%{{y:{y_format}}}<extra>{short(run.name)}</extra>",
            }
        )
    y_axis: dict[str, Any] = {"tickformat": y_format, "zeroline": False, "fixedrange": True, "automargin": True}
    y_axis |= {"range": list(y_range)} if y_range else {"rangemode": "tozero"}
    layout = {
        "height": LINES_PX,
        "margin": {"l": 48, "r": 12, "t": 8, "b": 44},
        "hovermode": "x unified",
        "showlegend": False,
        "uirevision": key,
        "meta": {
            "legend": [
                {"name": short(run.name), "colour": colour_of(index), "shape": "box"} for index, run in enumerate(runs)
            ],
            "index": x_title,
        },
        "xaxis": {"title": {"text": x_title, "standoff": 8}, "zeroline": False, "rangemode": "tozero"},
        "yaxis": y_axis,
    }
    return go.Figure({"data": traces, "layout": layout})


def lost_by_cause(runs: Sequence[Bar], *, x_format: str, x_title: str, x_prefix: str = "") -> go.Figure:
    """Stacked bars, a run each; a part for each cause of idle time."""
    most = max((sum(bar.parts.values()) for bar in runs), default=0.0)
    shown = [c for c in IDLE_CAUSES if max((b.parts.get(c, 0.0) for b in runs), default=0.0) > MIN_SHARE * most]
    parts = [(palette.CAUSE_LABELS[cause], palette.CAUSE_COLOURS[cause], cause) for cause in shown]
    return _stacked(runs, parts, x_format=x_format, x_title=x_title, x_prefix=x_prefix, key="lost_by_cause")


def bubbles(runs: Sequence[Bar], *, x_format: str, x_title: str) -> go.Figure:
    """Stacked bars, a run each: what a better split would have saved, and what no split could."""
    parts = [
        ("structural", STRUCTURAL_COLOUR, "structural"),
        ("residual", RESIDUAL_COLOUR, "residual"),
    ]
    return _stacked(runs, parts, x_format=x_format, x_title=x_title, x_prefix="", key="bubbles_by_run")


def _stacked(
    runs: Sequence[Bar],
    parts: Sequence[tuple[str, str, str]],
    *,
    x_format: str,
    x_title: str,
    x_prefix: str,
    key: str,
) -> go.Figure:
    """parts: label, colour, name in the bars. Rows are numbers: two long names may be the same when shortened."""
    rows = list(range(len(runs)))
    names = [short(bar.name) for bar in runs]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "y": rows,
            "x": [bar.parts.get(name, 0.0) for bar in runs],
            "name": label,
            "customdata": names,
            "marker": {"color": colour, "line": {"width": 1, "color": OUTLINE}},
            "hovertemplate": f"%{{customdata}}<br>{label} {x_prefix}%{{x:{x_format}}}<extra></extra>",
        }
        for label, colour, name in parts
    ]
    layout = {
        "height": len(runs) * BAR_PX + 64,
        "barmode": "stack",
        "bargap": 0.4,
        "margin": {"l": 8, "r": 20, "t": 4, "b": 44},
        "showlegend": False,
        "dragmode": False,
        "uirevision": key,
        "meta": {"legend": [{"name": label, "colour": colour, "shape": "box"} for label, colour, _ in parts]},
        "xaxis": {
            "tickformat": x_format, "tickprefix": x_prefix, "rangemode": "tozero", "fixedrange": True,
            "zeroline": False, "nticks": 7, "title": {"text": x_title, "standoff": 8},
        },
        "yaxis": {
            "tickvals": rows, "ticktext": names, "range": [len(runs) - 0.5, -0.5], "automargin": True,
            "showgrid": False, "zeroline": False, "fixedrange": True, "ticksuffix": "  ",
        },
    }  # fmt: skip
    return go.Figure({"data": traces, "layout": layout})


def labelled(dots: Sequence[Dot], *, wide: float, high: float) -> frozenset[int]:
    """Numbers of the dots that have room for their name above them, in their order. wide, high: what the axes span, in
    staleness and in share of idle time."""
    boxes: list[tuple[float, float, float, float]] = []
    found = set()
    for number, dot in enumerate(dots):
        x, y = dot.staleness / wide * PLOT_PX[0], dot.idle / high * PLOT_PX[1]
        half = len(short(dot.name)) * CHAR_PX / 2
        box = (x - half, x + half, y + 4, y + 4 + LINE_PX)
        # neither over another name nor over another dot
        dotted = [(d.staleness / wide * PLOT_PX[0], d.idle / high * PLOT_PX[1]) for d in dots if d is not dot]
        crossed = any(box[0] < b[1] and b[0] < box[1] and box[2] < b[3] and b[2] < box[3] for b in boxes)
        hidden = any(box[0] < px < box[1] and box[2] - 4 < py < box[3] + 4 for px, py in dotted)
        if not crossed and not hidden:
            boxes.append(box)
            found.add(number)
    return frozenset(found)


def idle_against_staleness(dots: Sequence[Dot], *, named: bool) -> go.Figure:
    """A dot a run; its mark and colour tell the arm. named: whether those with room for it have their name above."""
    arms = list(dict.fromkeys(dot.arm for dot in dots))
    low = min((dot.staleness for dot in dots), default=0.0)
    high = max((dot.staleness for dot in dots), default=1.0)
    room = max(0.25, (high - low) * 0.12)
    top = max((dot.idle for dot in dots), default=1.0) * 1.18 or 1.0
    with_name = labelled(dots, wide=high - low + 2 * room, high=top) if named else frozenset()
    traces, legend = [], []
    for index, arm in enumerate(arms):
        colour = colour_of(index)
        mine = [dot for dot in dots if dot.arm == arm]
        names = [short(dot.name) for dot in mine]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text" if named else "markers",
                "x": [dot.staleness for dot in mine],
                "y": [dot.idle for dot in mine],
                "text": [
                    short(dot.name) if number in with_name else "" for number, dot in enumerate(dots) if dot.arm == arm
                ],
                "textposition": "top center",
                "textfont": {"size": 11},
                "cliponaxis": False,
                "customdata": names,
                "name": arm,
                "marker": {
                    "color": colour, "size": 10, "symbol": MARKS[index % len(MARKS)], "opacity": 0.85,
                    "line": {"width": 1, "color": OUTLINE},
                },
                "hovertemplate": f"%{{customdata}}<br>{arm}, staleness %{{x:.3g}}, idle %{{y:.1%}}<extra></extra>",
            }
        )  # fmt: skip
        legend.append({"name": arm, "colour": colour, "shape": "box"})
    layout = {
        "height": SCATTER_PX,
        "margin": {"l": 52, "r": 16, "t": 20, "b": 44},
        "showlegend": False,
        "uirevision": "idle_against_staleness",
        "meta": {"legend": legend if len(arms) > 1 else []},
        "xaxis": {"title": {"text": "staleness", "standoff": 8}, "range": [low - room, high + room], "zeroline": False},
        "yaxis": {
            "title": {"text": "idle share"}, "tickformat": ".0%", "zeroline": False, "automargin": True,
            "range": [0, top],
        },
    }  # fmt: skip
    return go.Figure({"data": traces, "layout": layout})


def ratios(found: Sequence[Interval], *, of: str) -> go.Figure:
    """A dot a configuration with its interval, and a line at 1, where `of` stands."""
    rows = list(range(len(found)))
    means = [each.mean for each in found]
    colour = colour_of(0)
    trace = {
        "type": "scatter",
        "mode": "markers",
        "x": means,
        "y": rows,
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [0.0 if each.high is None else each.high - each.mean for each in found],
            "arrayminus": [0.0 if each.low is None else each.mean - each.low for each in found],
            "color": colour,
            "thickness": 1.6,
        },
        "marker": {"color": colour, "size": 9, "line": {"width": 1, "color": OUTLINE}},
        "customdata": [
            f"{short(each.name)}<br>{each.mean:.3f}"
            + ("" if each.low is None else f" [{each.low:.3f}, {each.high:.3f}]")
            for each in found
        ],
        "hovertemplate": f"%{{customdata}} over {of}<extra></extra>",
        "name": "ratio",
    }
    layout = {
        "height": len(found) * BAR_PX + 64,
        "margin": {"l": 8, "r": 20, "t": 4, "b": 44},
        "showlegend": False,
        "dragmode": False,
        "uirevision": "ratios",
        "shapes": [
            {
                "type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1,
                "line": {"dash": "dot", "width": 1.5, "color": "#8A909C"},
            }
        ],
        "xaxis": {
            "title": {"text": f"throughput over {short(of)}", "standoff": 8}, "tickformat": ".2f", "zeroline": False,
            "fixedrange": True, "nticks": 7,
        },
        "yaxis": {
            "tickvals": rows, "ticktext": [short(each.name) for each in found], "range": [len(found) - 0.5, -0.5],
            "automargin": True, "showgrid": False, "zeroline": False, "fixedrange": True, "ticksuffix": "  ",
        },
    }  # fmt: skip
    return go.Figure({"data": [trace], "layout": layout})
