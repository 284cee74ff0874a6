"""Where time is lost: the bubble heatmap (device x time, exact idle share) and lost time by cause. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from app import palette
from app.clock import PageClock, device_time
from app.detail import Plan, Row
from app.figures.command_marks import LANE_PX, CommandMarks, drawn
from app.figures.rows import MARGIN_PX, gap_px, pool_names, row_axis
from app.figures.time_axis import STOPS, hover_format
from app.modelled import REAL, Pace
from app.price import Price
from storage.words import IDLE_COLUMNS, USEFUL_COLUMNS

ROW_HEIGHTS_PX = (8, 40)
MAP_HEIGHT_PX = 320
MARGINS = {"l": MARGIN_PX, "r": 8, "t": 8, "b": 36}

MOST_GAPPED_CELLS = 8000
"""Cells with room between them are painted one by one, the others as one small picture that the browser stretches."""

ROWS_PX = 680
"""About the width of the rows on a screen, the colour bar left out: labels of commands are kept apart by it."""

SCREEN_PX = 520
"""Of rows that are too many to be thicker than a few pixels."""

MIN_ROW_PX = 2
OVERHEAD_COLOUR = "#9AA1AF"
"""Time that is neither useful nor idle, such as the optimizer or a weight sync: shown apart, in grey."""

CAUSE_LINE = "rgba(128,132,142,0.6)"
"""Outline of bars, so that the palest and the darkest are seen on either page."""

MIN_BARS_PX = 16
"""Bars of a narrow chart may be this short: their names and figures come first."""

MAX_CAUSES = 10
"""Rows of the chart; the rest is below a pixel."""

MIN_CAUSE_SHARE = 0.0005
"""A cause below half a per mille of the devices' time is noise of the clocks."""


def bubble_heatmap(
    share: np.ndarray, rows: Sequence[Row], plan: Plan, *, clock: PageClock, commands: CommandMarks | None = None
) -> go.Figure:
    """share: float [rows, bins], 0 to 1, NaN where nothing is known (left blank, never drawn as idle)."""
    row_px = _row_height(len(rows))
    gaps = len(rows) * plan.bins <= MOST_GAPPED_CELLS
    commands, names = commands or CommandMarks(), pool_names(rows)
    rows_px = max(len(rows) * row_px, 90)
    crossing = drawn(
        commands, x="x", y="paper", y0=0, y1=lambda lane: 1 + (lane + 0.5) * LANE_PX / rows_px, edge=1, cased=True
    )
    figure = go.Figure(
        go.Heatmap(
            # three digits are finer than a colour can show, and equal digits are an equal figure
            z=np.round(share, 3).astype(np.float32),
            x0=clock.axis(plan.t0 + plan.bin_s / 2),
            dx=plan.bin_s * 1000.0,
            y0=0,
            dy=1,
            zmin=0,
            zmax=1,
            colorscale=_scale(palette.HEAT_LIGHT),
            meta={"dark": {"colorscale": _scale(palette.HEAT_DARK)}, "rows": [row.label for row in rows]},
            xgap=1 if gaps and plan.bins <= 200 else 0,
            ygap=gap_px(row_px) if gaps else 0,
            hoverongaps=False,
            hovertemplate=f"%{{text}}<br>%{{x|{hover_format(plan.bin_s)}}}<br><b>idle %{{z:.0%}}</b><extra></extra>",
            colorbar={
                "title": {"text": "idle", "side": "top"},
                "tickformat": ".0%",
                "thickness": 10,
                "len": 1,
                "outlinewidth": 0,
                "tickvals": [0, 0.5, 1],
            },
        )
    )
    figure.update_layout(
        height=rows_px + commands.height_px + MARGINS["t"] + MARGINS["b"],
        margin={**MARGINS, "t": MARGINS["t"] + commands.height_px},
        uirevision="bubbles",
        xaxis={
            "type": "date",
            "showgrid": False,
            "zeroline": False,
            "tickformatstops": STOPS,
            "nticks": 6,
            "range": [clock.axis(plan.t0), clock.axis(plan.t1)],
        },
        yaxis=row_axis(rows, row_px),
        **{part: [*names[part], *crossing[part]] for part in names},
    )
    return figure


def _row_height(rows: int) -> int:
    low, high = ROW_HEIGHTS_PX
    if rows * low > SCREEN_PX:
        return max(MIN_ROW_PX, SCREEN_PX // rows)
    return min(high, max(low, MAP_HEIGHT_PX // max(rows, 1)))


def _scale(colours: Sequence[str]) -> list[list[object]]:
    return [[i / (len(colours) - 1), colour] for i, colour in enumerate(colours)]


def lost_time(seconds: Mapping[str, float]) -> list[tuple[str, str, float]]:
    """(label, colour, device-seconds), most first: each cause of idle time, and each kind of overhead."""
    found = [
        (palette.CAUSE_LABELS[cause], palette.CAUSE_COLOURS[cause], seconds.get(column, 0.0))
        for column in IDLE_COLUMNS
        if (cause := column.removeprefix("idle_"))
    ]
    found += [
        (palette.label(column), OVERHEAD_COLOUR, value)
        for column, value in seconds.items()
        if column not in IDLE_COLUMNS and column not in USEFUL_COLUMNS
    ]
    total = sum(seconds.values())
    kept = [item for item in found if total > 0 and item[2] / total >= MIN_CAUSE_SHARE]
    return sorted(kept, key=lambda item: -item[2])[:MAX_CAUSES]


def lost_words(value: float, total: float, price: Price | None) -> list[str]:
    """Share of all device time, device-time and, with a price, money. value, total: device-seconds."""
    money = [] if price is None else [price.told(value)]
    return [f"{value / total:.1%}", device_time(value).replace("device-", ""), *money]


def causes(seconds: Mapping[str, float], pace: Pace = REAL, price: Price | None = None) -> go.Figure:
    """Bars of `lost_time`, in share of all device time, in device-time and, with a price, in money. seconds: column ->
    device-seconds, of emulated devices modelled ones, of which `pace` makes the hover tell."""
    total = sum(seconds.values())
    items = lost_time(seconds)
    shares = [value / total for _, _, value in items]
    texts = [" · ".join(lost_words(value, total, price)) for _, _, value in items]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            x=shares,
            y=[label for label, _, _ in items],
            marker={
                "color": [colour for _, colour, _ in items],
                "line": {"width": 1, "color": CAUSE_LINE},
            },
            text=texts,
            textposition="outside",
            cliponaxis=False,
            hovertemplate=f"%{{y}}<br>%{{text}}{pace.unit}{pace.hover}<extra></extra>",
            name="share of device time",
        )
    )
    figure.update_layout(
        height=max(120, 34 * len(items) + 24),
        minreducedwidth=MIN_BARS_PX,
        margin={"l": 8, "r": 84 if price is None else 12 + 6 * max(map(len, texts), default=12), "t": 4, "b": 8},
        bargap=0.35,
        showlegend=False,
        dragmode=False,
        uirevision="causes",
        xaxis={"visible": False, "range": [0, max(shares, default=1.0)], "fixedrange": True},
        yaxis={"autorange": "reversed", "automargin": True, "showgrid": False, "fixedrange": True, "ticksuffix": "  "},
    )
    return figure
