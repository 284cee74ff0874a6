"""What a change is expected to do: throughput with its band, and idle time by cause, now and afterwards. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from app import palette
from app.modelled import REAL, Pace
from planner.whatif import Band

HEIGHT_PX = 216
MARGINS = {"l": 72, "r": 20, "t": 22, "b": 36}

COLUMNS = ((0.0, 0.44), (0.56, 1.0))
"""Domains of the two panels."""

NOW_COLOUR, LATER_COLOUR = "#C8330C", "#2F4B9B"
LATER_DARK = "#8FA8F0"
BAND_COLOUR = "rgba(88,119,221,0.32)"

NAMES = ("now", "expected")
"""Rows of both panels, from the top."""

ROOM = 0.12
"""Of what is shown, left free on either side."""


def forecast(now: float, expected: Band, causes: Sequence[tuple[str, float, float]], *, pace: Pace = REAL) -> go.Figure:
    """now: measured tokens/s. causes: (cause, share of device time now, expected share)."""
    low, high = min(now, expected.low), max(now, expected.high)
    room = (high - low) * ROOM or abs(now) * ROOM or 1.0
    longest = max(sum(share for _, share, _ in causes), sum(later for _, _, later in causes))
    layout: dict[str, Any] = {
        "height": HEIGHT_PX,
        "margin": MARGINS,
        "barmode": "stack",
        "bargap": 0.45,
        "showlegend": False,
        "dragmode": False,
        "hovermode": "closest",
        "uirevision": "forecast",
        "meta": {"legend": _legend(causes)},
        "xaxis": {
            "domain": list(COLUMNS[0]), "range": [low - room, high + room], "tickformat": ",.3~s", "nticks": 5,
            "fixedrange": True, "zeroline": False,
        },
        "yaxis": _rows("x"),
        "xaxis2": {
            "domain": list(COLUMNS[1]), "anchor": "y2", "range": [0, max(longest * (1 + ROOM), 0.01)],
            "tickformat": ".0%" if longest > 0.05 else ".1%", "nticks": 5, "fixedrange": True, "zeroline": False,
        },
        "yaxis2": _rows("x2"),
        "annotations": [
            _title(f"<b>Tokens/s</b>{pace.unit}", "x"),
            _title("<b>Idle</b>, share of device time by cause", "x2"),
        ],
    }  # fmt: skip
    return go.Figure({"data": [*_throughput(now, expected, pace), *_idle(causes, pace)], "layout": layout})


def _rows(anchor: str) -> dict[str, Any]:
    return {
        "anchor": anchor, "range": [1.6, -0.6], "tickvals": [0, 1], "ticktext": list(NAMES), "ticksuffix": "  ",
        "showgrid": False, "zeroline": False, "fixedrange": True,
    }  # fmt: skip


def _title(text: str, axis: str) -> dict[str, Any]:
    return {
        "text": text, "xref": f"{axis} domain", "yref": "paper", "x": 0, "y": 1, "yshift": 12, "xanchor": "left",
        "yanchor": "middle", "showarrow": False, "font": {"size": 13},
    }  # fmt: skip


def _throughput(now: float, expected: Band, pace: Pace) -> list[dict[str, Any]]:
    unit = f"tokens/s{pace.unit}{pace.hover}<extra></extra>"
    band = {
        "type": "bar", "orientation": "h", "y": [1], "base": [expected.low], "x": [expected.high - expected.low],
        "width": 0.42, "marker": {"color": BAND_COLOUR, "line": {"width": 0}}, "name": "band",
        "text": [f"{expected.low:,.0f} to {expected.high:,.0f}"], "textposition": "none",
        "hovertemplate": f"between %{{text}} {unit}",
    }  # fmt: skip
    points = {
        "type": "scatter", "mode": "markers", "x": [now, expected.middle], "y": [0, 1], "name": "tokens/s",
        "marker": {"symbol": ["diamond", "circle"], "size": 11, "color": [NOW_COLOUR, LATER_COLOUR]},
        "meta": {"dark": {"marker": {"color": [NOW_COLOUR, LATER_DARK]}}},
        "hovertemplate": f"%{{x:,.0f}} {unit}",
    }  # fmt: skip
    return [band, points]


def _idle(causes: Sequence[tuple[str, float, float]], pace: Pace) -> list[dict[str, Any]]:
    return [
        {
            "type": "bar", "orientation": "h", "xaxis": "x2", "yaxis": "y2", "y": [0, 1], "x": [now, later],
            "name": palette.CAUSE_LABELS[cause], "width": 0.42,
            "marker": {"color": palette.CAUSE_COLOURS[cause], "line": {"width": 1, "color": "rgba(128,132,142,0.6)"}},
            "hovertemplate": f"%{{fullData.name}} %{{x:.1%}}{pace.hover}<extra></extra>",
        }
        for cause, now, later in causes
    ]  # fmt: skip


def _legend(causes: Sequence[tuple[str, float, float]]) -> list[dict[str, str]]:
    return [
        {"name": "measured now", "colour": NOW_COLOUR, "shape": "diamond"},
        {"name": "expected, with its band", "colour": LATER_COLOUR, "shape": "box"},
        *(
            {"name": palette.CAUSE_LABELS[cause], "colour": palette.CAUSE_COLOURS[cause], "shape": "box"}
            for cause, _, _ in causes
        ),
    ]
