"""A recorded run replayed under other settings: throughput with the band in which it is expected, and idle time.

Pure. What was measured has a mark of its own; everything else is called SIMULATED.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from app import palette
from planner.whatif import Band

MEASURED, MEASURED_DARK = "#C8330C", "#F0764F"
SIMULATED, SIMULATED_DARK = palette.COLOURS["rollout"], "#8FA8F0"
STRUCTURAL, RESIDUAL = "#C8330C", "#E4A27A"
BAND = "rgba(88,119,221,0.32)"
LINE = "rgba(128,132,142,0.6)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One row of a what-if."""

    name: str
    tokens_per_s: float
    measured: bool = False
    """Measured, not simulated."""
    band: Band | None = None
    """Expected throughput."""
    structural: float | None = None
    residual: float | None = None
    """Shares of device time; where only their sum is known it is residual."""


def replays(rows: Sequence[Replayed], *, unit: str = "", hover: str = "") -> go.Figure:
    """Throughput of each row with the band in which the model expects it, beside its idle share in two parts.

    unit, hover: what follows a unit and a hover of an emulated run.
    """
    y = list(range(len(rows)))
    ends = [end for r in rows for end in (r.tokens_per_s, *((r.band.low, r.band.high) if r.band else ()))]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    room = (high - low) * 0.12 or abs(high) * 0.12 or 1.0
    longest = max(((r.structural or 0.0) + (r.residual or 0.0) for r in rows), default=0.0)
    banded = [(i, r.band) for i, r in enumerate(rows) if r.band is not None]
    traces: list[dict[str, Any]] = [
        {
            "type": "bar", "orientation": "h", "y": [i for i, _ in banded], "base": [b.low for _, b in banded],
            "x": [b.high - b.low for _, b in banded], "width": 0.42, "name": "expected",
            "marker": {"color": BAND, "line": {"width": 0}}, "textposition": "none",
            "text": [f"{b.low:,.0f} to {b.high:,.0f}" for _, b in banded],
            "hovertemplate": f"expected %{{text}} tokens/s{unit}{hover}<extra></extra>",
        }
    ]  # fmt: skip
    for told, symbol, colour, dark in (
        (True, "diamond", MEASURED, MEASURED_DARK),
        (False, "circle", SIMULATED, SIMULATED_DARK),
    ):
        here = [(i, r.tokens_per_s) for i, r in enumerate(rows) if r.measured is told]
        word = "measured" if told else "SIMULATED"
        traces.append(
            {
                "type": "scatter", "mode": "markers", "x": [v for _, v in here], "y": [i for i, _ in here],
                "name": word, "marker": {"symbol": symbol, "size": 11, "color": colour},
                "meta": {"dark": {"marker": {"color": dark}}},
                "hovertemplate": f"%{{x:,.0f}} tokens/s{unit}, {word}{hover}<extra></extra>",
            }
        )  # fmt: skip
    for name, colour, shares in (
        ("structural", STRUCTURAL, [r.structural for r in rows]),
        ("residual", RESIDUAL, [r.residual for r in rows]),
    ):
        traces.append(
            {
                "type": "bar", "orientation": "h", "xaxis": "x2", "yaxis": "y2", "y": y, "x": shares, "name": name,
                "width": 0.5, "marker": {"color": colour, "line": {"width": 1, "color": LINE}},
                "hovertemplate": f"{name} %{{x:.1%}}{hover}<extra></extra>",
            }
        )  # fmt: skip
    names = [_short(row.name) for row in rows]
    axis = {"range": [len(rows) - 0.4, -0.6], "showgrid": False, "zeroline": False, "fixedrange": True}
    layout: dict[str, Any] = {
        "height": 34 * max(2, len(rows)) + 80,
        "margin": {"l": 250, "r": 20, "t": 26, "b": 36},
        "barmode": "stack",
        "showlegend": False,
        "dragmode": False,
        "hovermode": "closest",
        "uirevision": "replays",
        "meta": {
            "legend": [
                {"name": "measured", "colour": MEASURED, "shape": "diamond"},
                {"name": "replayed, SIMULATED", "colour": SIMULATED, "shape": "box"},
                {"name": "expected, the model’s error as a band", "colour": BAND, "shape": "box"},
                {"name": "structural idle", "colour": STRUCTURAL, "shape": "box"},
                {"name": "residual idle", "colour": RESIDUAL, "shape": "box"},
            ]
        },
        "xaxis": {
            "domain": [0, 0.6], "range": [low - room, high + room], "tickformat": ",.3~s", "nticks": 6,
            "fixedrange": True, "zeroline": False,
        },
        "yaxis": {**axis, "tickvals": y, "ticktext": names, "ticksuffix": "  "},
        "xaxis2": {
            "domain": [0.66, 1], "anchor": "y2", "range": [0, max(longest * 1.12, 0.01)], "nticks": 5,
            "tickformat": ".0%" if longest > 0.05 else ".1%", "fixedrange": True, "zeroline": False,
        },
        "yaxis2": {**axis, "anchor": "x2", "tickvals": y, "showticklabels": False},
        "annotations": [
            {**_title(f"<b>Tokens/s</b>{unit}", "y"), "x": 0},
            {**_title("<b>Idle</b>, share of device time", "y"), "x": 0.66},
        ],
    }  # fmt: skip
    return go.Figure({"data": traces, "layout": layout})


def _short(name: str, most: int = 40) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _title(text: str, axis: str) -> dict[str, Any]:
    return {
        "text": text, "xref": "paper", "yref": f"{axis} domain", "x": 0, "y": 1, "yshift": 12, "xanchor": "left",
        "yanchor": "middle", "showarrow": False, "font": {"size": 13},
    }  # fmt: skip
