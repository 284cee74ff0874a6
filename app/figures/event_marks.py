"""Marks of checkpoints and failures above the timeline, in a lane of their own. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from app.clock import PageClock
from app.modelled import REAL, Pace
from app.timeline_events import Event

EVENTS_PX = 16
"""Height of the lane."""

LOOKS = {
    "checkpoint": ("square", "#787CA9", "checkpoint begins"),
    "failure": ("square-x", "#E5482A", "failure"),
}
"""Kind -> symbol, colour and name in the legend; a failure has a cross too, for who sees no red."""

MAX_EVENTS = 120
"""More marks than this are a line; the newest are kept."""

HOVER_COLUMNS, HOVER_CHARACTERS = 56, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMarks:
    """What the timeline adds for events."""

    traces: tuple[dict[str, Any], ...] = ()
    """Plotly traces on the axis of the strip above the raster."""
    legend: tuple[dict[str, str], ...] = ()
    """Their part of the legend."""


def event_marks(events: Sequence[Event], clock: PageClock, y: float, pace: Pace = REAL) -> EventMarks:
    """y: middle of their lane, as a part of the strip."""
    traces, legend = [], []
    for kind, (symbol, colour, called) in LOOKS.items():
        shown = [event for event in events if event.kind == kind][-MAX_EVENTS:]
        if not shown:
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": kind,
                "x": [clock.axis(event.at) for event in shown],
                "y": [y] * len(shown),
                "yaxis": "y2",
                # a run that failed did so at its very end
                "cliponaxis": False,
                "marker": {"symbol": symbol, "size": 9, "color": colour, "line": {"width": 1, "color": "#FFFFFF"}},
                "text": [_text(event, clock, pace) for event in shown],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
        legend.append({"name": called, "colour": colour, "shape": "box"})
    return EventMarks(traces=tuple(traces), legend=tuple(legend))


def _text(event: Event, clock: PageClock, pace: Pace) -> str:
    told = textwrap.wrap(textwrap.shorten(event.text, HOVER_CHARACTERS, placeholder=" …"), HOVER_COLUMNS)
    return "<br>".join([f"<b>{event.kind}</b> · {clock.time(event.at)}", *map(escape, told)]) + pace.hover
