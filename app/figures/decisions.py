"""Whether the gates were right: predicted against measured gain, regret over time, share that paid off over time. Pure.

Sums are over all measured leases; only what is drawn is thinned, and a line keeps its newest point exact.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from app import palette
from app.clock import PageClock
from app.lending import DIRECTION_WORDS
from app.modelled import REAL, Pace
from storage.records import LeaseVerdict
from storage.words import DIRECTIONS

MAX_POINTS = 600
"""More marks than this cover each other, and each costs the browser a hover text; the newest are drawn."""

MAX_LINE_POINTS = 400
"""More points than pixels show nothing."""

SHARE_LEASES, SHARE_PARTS = 20, 40
"""Leases behind a point of the share that paid off: one is a yes or no, a hundred would hide a change; of a long run a
fortieth of them, or the line would be noise."""

SCATTER_PX, OVER_TIME_PX = 380, 380

ROWS = ((0.56, 0.93), (0.0, 0.37))
"""Domains of the two panels over time, from the top."""

SERIES = {"rollout_on_train": "reward", "train_on_rollout": "length"}
"""Direction -> colours: blue as rollout is, amber as training is."""

SYMBOLS = {"rollout_on_train": "circle", "train_on_rollout": "diamond"}
"""So that directions are not told by colour alone."""

LINE = "#8A909C"
ROOM = 0.06
"""Of what is shown, left free on either side."""


def thinned(points: Sequence[tuple[float, float]], most: int = MAX_LINE_POINTS) -> list[tuple[float, float]]:
    """Every n-th point, counted from the newest so that it is always there, and the first one."""
    stride = -(-len(points) // most) or 1
    kept = list(points[::-1][::stride])[::-1]
    return kept if not points or kept[0] == points[0] else [points[0], *kept]


def regret_so_far(verdicts: Sequence[LeaseVerdict], direction: str) -> list[tuple[float, float]]:
    """(granted at, seconds lost by all leases up to it) in the order of grants."""
    own = [v for v in verdicts if v.direction == direction]
    return list(zip((v.granted_at for v in own), itertools.accumulate(v.regret_s for v in own), strict=True))


def gain_so_far(verdicts: Sequence[LeaseVerdict], direction: str) -> list[tuple[float, float]]:
    """The same of the measured gains."""
    own = [v for v in verdicts if v.direction == direction]
    return list(zip((v.granted_at for v in own), itertools.accumulate(v.measured_gain_s for v in own), strict=True))


def share_width(verdicts: Sequence[LeaseVerdict]) -> int:
    """Leases behind a point of the share that paid off."""
    return max(SHARE_LEASES, len(verdicts) // SHARE_PARTS)


def share_paid_off(verdicts: Sequence[LeaseVerdict], direction: str) -> list[tuple[float, float]]:
    """(granted at, share of the last `share_width` measured leases of the direction that won time)."""
    last: deque[bool] = deque(maxlen=share_width(verdicts))
    won = 0
    points = []
    for verdict in verdicts:
        if verdict.direction == direction:
            won -= last[0] if len(last) == last.maxlen else 0
            last.append(verdict.measured_gain_s > 0)
            won += last[-1]
            points.append((verdict.granted_at, won / len(last)))
    return points


def drawn(verdicts: Sequence[LeaseVerdict]) -> list[LeaseVerdict]:
    """Those that the scatter shows: the newest with a prediction."""
    return [v for v in verdicts if v.predicted_s is not None][-MAX_POINTS:]


def predicted_and_measured(verdicts: Sequence[LeaseVerdict], *, pace: Pace = REAL) -> go.Figure:
    """One mark a lease: above the diagonal it won more than was predicted, below the zero line it lost time; measured
    by the work that the prediction is about. Costs and gains are modelled already."""
    shown = drawn(verdicts)
    low, high = _range([x for v in shown for x in (v.predicted_s or 0.0, v.as_foretold_s)])
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "x": [low, high], "y": [low, high], "hoverinfo": "skip",
            "line": {"color": LINE, "width": 1.4, "dash": "dash"}, "name": "",
        }
    ]  # fmt: skip
    data += [_marks(shown, direction, pace) for direction in DIRECTIONS if any(v.direction == direction for v in shown)]
    axis = {"range": [low, high], "zeroline": True, "ticksuffix": " s", "nticks": 7}
    layout: dict[str, Any] = {
        "height": SCATTER_PX,
        "margin": {"l": 62, "r": 14, "t": 14, "b": 48},
        "showlegend": False,
        "hovermode": "closest",
        "uirevision": "predicted",
        "meta": {"legend": [*_legend(shown), {"name": "as predicted", "colour": LINE, "shape": "box"}]},
        "xaxis": {**axis, "title": {"text": f"predicted, costs deducted{pace.unit}", "standoff": 8}},
        "yaxis": {**axis, "title": {"text": f"measured as foretold, costs deducted{pace.unit}", "standoff": 4}},
    }
    return go.Figure({"data": data, "layout": layout})


def _marks(shown: Sequence[LeaseVerdict], direction: str, pace: Pace) -> dict[str, Any]:
    own = [v for v in shown if v.direction == direction]
    colour, dark = palette.SERIES[SERIES[direction]], palette.SERIES_DARK[SERIES[direction]]
    return {
        "type": "scatter", "mode": "markers", "name": DIRECTION_WORDS[direction],
        "x": [_short(v.predicted_s or 0.0) for v in own], "y": [_short(v.as_foretold_s) for v in own],
        "customdata": [v.lease for v in own],
        "marker": {"symbol": SYMBOLS[direction], "size": 8, "color": colour, "opacity": 0.72},
        "meta": {"dark": {"marker": {"color": dark}}},
        "hovertemplate": "<b>lease %{customdata}</b> · %{fullData.name}<br>predicted %{x:.3g} s, measured %{y:.3g} s"
        f"{pace.unit}{pace.hover}<extra></extra>",
    }  # fmt: skip


def over_time(verdicts: Sequence[LeaseVerdict], *, clock: PageClock, pace: Pace = REAL) -> go.Figure:
    """Regret added up, and below it the share of the last leases that paid off, per direction over the wall time."""
    data: list[dict[str, Any]] = []
    for panel, points_of in ((1, regret_so_far), (2, share_paid_off)):
        for direction in DIRECTIONS:
            points = thinned(points_of(verdicts, direction))
            if points:
                data.append(_line(panel, direction, points, clock, pace))
    panels: list[tuple[str, str, dict[str, Any], str]] = [
        ("Regret so far", "y", {"rangemode": "tozero", "ticksuffix": " s"}, f"seconds{pace.unit}"),
        ("Share that paid off", "y2", {"range": [-0.04, 1.04], "tickformat": ".0%", "nticks": 4},
         f"of the last {share_width(verdicts):,} measured leases"),
    ]  # fmt: skip
    layout: dict[str, Any] = {
        "height": OVER_TIME_PX,
        "margin": {"l": 62, "r": 14, "t": 14, "b": 44},
        "showlegend": False,
        "hovermode": "x unified",
        "uirevision": "over_time",
        "meta": {"legend": _legend(verdicts)},
        "xaxis": {"type": "date", "anchor": "y", "showgrid": False, "zeroline": False, "showticklabels": False},
        "xaxis2": {"type": "date", "anchor": "y2", "matches": "x", "showgrid": False, "zeroline": False},
        "annotations": [],
    }
    for number, (name, axis, special, told) in enumerate(panels):
        layout[f"yaxis{axis[1:]}"] = {
            "domain": list(ROWS[number]), "anchor": f"x{axis[1:]}", "zeroline": False, "nticks": 5, "fixedrange": True,
            **special,
        }  # fmt: skip
        layout["annotations"].append(
            {
                "text": f"<b>{name}</b>  {told}", "xref": "paper", "x": 0, "yref": f"{axis} domain", "y": 1,
                "yshift": 14, "xanchor": "left", "yanchor": "middle", "showarrow": False, "font": {"size": 13},
            }
        )  # fmt: skip
    return go.Figure({"data": data, "layout": layout})


def _line(
    panel: int, direction: str, points: Sequence[tuple[float, float]], clock: PageClock, pace: Pace
) -> dict[str, Any]:
    colour, dark = palette.SERIES[SERIES[direction]], palette.SERIES_DARK[SERIES[direction]]
    on = "" if panel == 1 else str(panel)
    told = f"%{{y:.3g}} s{pace.unit}" if panel == 1 else "%{y:.0%} paid off"
    return {
        "type": "scatter", "xaxis": f"x{on}", "yaxis": f"y{on}", "name": DIRECTION_WORDS[direction],
        "x": [clock.axis(at) for at, _ in points], "y": [_short(value) for _, value in points],
        # a single point has no line, and would be invisible
        "mode": "lines" if len(points) > 1 else "markers",
        "line": {"color": colour, "width": 2, "shape": "hv"}, "marker": {"color": colour, "size": 7},
        "meta": {"dark": {"line": {"color": dark}, "marker": {"color": dark}}},
        "hovertemplate": f"{told}{pace.hover}",
    }  # fmt: skip


def _legend(verdicts: Sequence[LeaseVerdict]) -> list[dict[str, str]]:
    return [
        {
            "name": DIRECTION_WORDS[direction],
            "colour": palette.SERIES[SERIES[direction]],
            "shape": "diamond" if SYMBOLS[direction] == "diamond" else "box",
        }
        for direction in DIRECTIONS
        if any(v.direction == direction for v in verdicts)
    ]


def _range(values: Sequence[float]) -> tuple[float, float]:
    """What both axes show: all values and 0, so that the diagonal and the zero lines are there."""
    low, high = min([0.0, *values]), max([0.0, *values])
    room = (high - low) * ROOM or 1.0
    return low - room, high + room


def _short(value: float) -> float:
    """Six figures: more would only travel."""
    return float(f"{value:.6g}")
