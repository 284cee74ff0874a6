"""The timeline of a run: a raster of what each device is doing, steps above it, commands across and leases on it. Pure.

One heatmap with discrete colours draws a hundred thousand spans as fast as a thousand; missing telemetry is hatched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from app import palette
from app.clock import PageClock
from app.detail import NO_DATA, Plan, Row, gaps
from app.figures.command_marks import LANE_PX, CommandMarks, drawn
from app.figures.event_marks import EVENTS_PX, EventMarks
from app.figures.lease_marks import LeaseMarks
from app.figures.rows import MARGIN_PX, gap_lines, pool_names, row_axis
from app.figures.time_axis import STOPS, hover_format
from app.modelled import REAL, Pace
from app.timeline_colours import PHASES, Scheme
from storage.records import StepRow

ROW_HEIGHTS_PX = (14, 58)
"""A row with a label beside it, and a thick one that does not shout yet."""

RASTER_HEIGHT_PX = 330
"""Aimed at for all rows together."""

LABELLED_ROWS = 34
"""Up to here every row has room for its label; more rows share what a screen has."""

SCREEN_PX = 540
MIN_ROW_PX = 2
"""A row of one pixel is lost between two others."""

MARKS_HEIGHT_PX = 22
"""Strip of step and command marks above the raster."""

ROWS_PX = 760
"""About the width of the rows on a screen: labels of commands are kept apart by it."""

MARGINS = {"l": MARGIN_PX, "r": 16, "t": 4, "b": 32}

STEP_COLOUR = "#8A909C"
COMMAND_COLOUR = "#C04BE8"

MAX_MARKS = 240
"""More step marks than this touch each other; the newest are kept."""

CODES = ("no data", *palette.LABELS)
"""Label of each cell code."""


def timeline(
    codes: np.ndarray,
    rows: Sequence[Row],
    plan: Plan,
    *,
    window: tuple[float, float],
    clock: PageClock,
    steps: Sequence[StepRow] = (),
    commands: CommandMarks | None = None,
    leases: LeaseMarks | None = None,
    events: EventMarks | None = None,
    pace: Pace = REAL,
    scheme: Scheme = PHASES,
) -> go.Figure:
    """codes: uint8 [rows, bins], categories of `scheme` from 1 on. window: unix seconds shown at first; zoom may go
    beyond it. events: None where there is no lane for them."""
    leases, commands = leases or LeaseMarks(), commands or CommandMarks()
    strip_px = MARKS_HEIGHT_PX + (EVENTS_PX if events is not None else 0)
    marks, named = _marks(steps, commands, (plan.t0, plan.t1), clock, pace, 0.4 * MARKS_HEIGHT_PX / strip_px)
    if events is not None:
        marks, named = [*marks, *events.traces], [*named, *events.legend]
    raster_px = len(rows) * _row_height(len(rows))
    plot_px = raster_px + strip_px + commands.height_px
    split, strip = raster_px / plot_px, (raster_px + strip_px) / plot_px
    names = pool_names(rows)
    crossing = drawn(
        commands,
        x="x",
        y="paper",
        y0=0,
        y1=lambda lane: strip + (lane + 0.5) * LANE_PX / plot_px,
        edge=strip,
        cased=True,
    )
    layout = {
        "height": plot_px + MARGINS["t"] + MARGINS["b"],
        "margin": MARGINS,
        "uirevision": "timeline",
        "hovermode": "closest",
        "dragmode": "zoom",
        "bargap": 0,
        "showlegend": False,
        "meta": {"legend": [*_legend(codes, scheme), *leases.legend, *named]},
        "xaxis": {
            "type": "date", "range": [clock.axis(window[0]), clock.axis(window[1])], "showgrid": False,
            "tickformatstops": STOPS, "ticks": "outside", "ticklen": 4, "nticks": 8, "zeroline": False,
        },
        "yaxis": {"domain": [0, split], **row_axis(rows, _row_height(len(rows)))},
        "yaxis2": {"domain": [split, strip], "range": [0, 1], "visible": False, "fixedrange": True},
        **{part: [*names[part], *crossing[part]] for part in names},
    }  # fmt: skip
    return go.Figure(
        {
            "data": [
                _raster(codes, rows, plan, clock, scheme),
                *_hatch(codes, plan, clock),
                *gap_lines(len(rows), _row_height(len(rows)), (clock.axis(plan.t0), clock.axis(plan.t1))),
                *leases.traces,
                *marks,
            ],
            "layout": layout,
        }
    )


def _row_height(rows: int) -> int:
    if rows > LABELLED_ROWS:
        return max(MIN_ROW_PX, SCREEN_PX // rows)
    low, high = ROW_HEIGHTS_PX
    return min(high, max(low, RASTER_HEIGHT_PX // max(rows, 1)))


def _raster(codes: np.ndarray, rows: Sequence[Row], plan: Plan, clock: PageClock, scheme: Scheme) -> dict[str, Any]:
    labels = ["no data", *scheme.labels]
    count = len(labels)
    colours = ["rgba(0,0,0,0)", *scheme.colours]
    scale = [[edge, colour] for i, colour in enumerate(colours) for edge in (i / count, (i + 1) / count)]
    return {
        "type": "heatmap",
        "z": codes,
        "x0": clock.axis(plan.t0 + plan.bin_s / 2),
        "dx": plan.bin_s * 1000.0,
        "y0": 0,
        "dy": 1,
        "zmin": -0.5,
        "zmax": count - 0.5,
        "colorscale": scale,
        "showscale": False,
        # the page puts the labels of row and code into the text, so that they need not travel for every cell
        "meta": {"labels": labels, "rows": [row.label for row in rows]},
        "hovertemplate": f"%{{text}}<br>%{{x|{hover_format(plan.bin_s)}}}<extra></extra>",
        "name": "",
    }


def _hatch(codes: np.ndarray, plan: Plan, clock: PageClock) -> list[dict[str, Any]]:
    missing = gaps(codes)
    pattern = {
        "shape": "/", "fgcolor": palette.NO_DATA_LINE, "bgcolor": palette.NO_DATA_FILL, "size": 7, "solidity": 0.2,
        "fillmode": "replace",
    }  # fmt: skip
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": [row for row, _, _ in missing],
        "base": [clock.axis(plan.t0 + first * plan.bin_s) for _, first, _ in missing],
        "x": [bins * plan.bin_s * 1000.0 for _, _, bins in missing],
        "width": 0.92,
        "marker": {"color": palette.NO_DATA_FILL, "line": {"width": 0}, "pattern": pattern},
        "hovertemplate": "no data<extra></extra>",
        "name": "no data",
    }
    return [bars] if missing else []


def _legend(codes: np.ndarray, scheme: Scheme) -> list[dict[str, str]]:
    """name, colour and shape of what is in the picture; the chart host writes it above the chart."""
    present = set(np.unique(codes).tolist())
    items = [
        {"name": name, "colour": colour, "shape": "box"}
        for name, colour, categories in scheme.entries
        if present & {category + 1 for category in categories}
    ]
    if NO_DATA in present:
        items.append({"name": "no data", "colour": palette.NO_DATA_LINE, "shape": "hatch"})
    return items


def _marks(
    steps: Sequence[StepRow],
    commands: CommandMarks,
    window: tuple[float, float],
    clock: PageClock,
    pace: Pace,
    y: float,
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Ends of steps and commands at height `y` of the strip, and their part of the legend."""
    marks, named = [], []
    shown = [s for s in steps if window[0] <= s.t_end <= window[1]][-MAX_MARKS:]
    if shown:
        texts = [_step_text(s, pace) for s in shown]
        marks.append(_mark("step", [clock.axis(s.t_end) for s in shown], texts, y, "triangle-down", STEP_COLOUR, 7))
        named.append({"name": "end of a step", "colour": STEP_COLOUR, "shape": "triangle"})
    if commands.flags:
        at, texts = [flag.x for flag in commands.flags], [flag.hover for flag in commands.flags]
        marks.append(_mark("command", at, texts, y, "diamond", COMMAND_COLOUR, 10))
        named.append({"name": "command", "colour": COMMAND_COLOUR, "shape": "diamond"})
    return marks, named


def _mark(name: str, x: list[float], text: list[str], y: float, symbol: str, colour: str, size: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": x,
        "y": [y] * len(x),
        "yaxis": "y2",
        "mode": "markers",
        "name": name,
        "marker": {"symbol": symbol, "size": size, "color": colour},
        "text": text,
        "hovertemplate": "%{text}<extra></extra>",
    }


def _step_text(step: StepRow, pace: Pace) -> str:
    reward = "" if step.reward_mean is None else f" · reward {step.reward_mean:.2f}"
    lag = "" if step.lag_max is None else f" · lag up to {step.lag_max}"
    return f"step {step.step} · {pace.seconds(step.t_end - step.t_start):.1f} s{pace.unit}{reward}{lag}{pace.hover}"
