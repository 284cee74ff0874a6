"""Marks of leases in the timeline: where devices were lent and where they came home, on their own rows. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from typing import Any

from app.clock import PageClock, duration
from app.detail import Row
from app.lending import DIRECTION_WORDS, MAX_LEASE_MARKS, delivered, device_list
from app.modelled import REAL, Pace
from storage.records import LeaseRow

FILL, OUTLINE = "#FFFFFF", "#22262E"
"""White with a dark edge: the one pair that shows on every colour of the raster and on both pages."""

SIZES_PX = ((16, 9), (64, 7), (256, 5))
"""Up to so many rows: size of a mark. Rows get thinner, and a mark should not reach far into the next ones."""

LIFT = 0.24
"""Grants stand above the middle of their row and returns below it, so that those of a short lease do not overlap."""

REASON_CHARACTERS = 120
HOVER_COLUMNS = 48
"""A hover text is a glance, and travels with each refresh; the whole sentence is in the Decisions table."""

KEPT_REASONS = 4096
"""Reasons that are broken into lines already, for all who look: a window has the same marks for many refreshes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseMarks:
    """What the timeline adds for leases."""

    traces: tuple[dict[str, Any], ...] = ()
    """Plotly traces on the raster's axes."""
    legend: tuple[dict[str, str], ...] = ()
    """Their part of the legend."""
    cut: bool = False
    """Whether only the newest marks are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    at: float
    row: float
    lease: LeaseRow
    home: bool


def lease_marks(
    leases: Sequence[LeaseRow],
    rows: Sequence[Row],
    window: tuple[float, float],
    clock: PageClock,
    pace: Pace = REAL,
) -> LeaseMarks:
    """Marks inside `window` (unix seconds), the newest `MAX_LEASE_MARKS` of them. Costs and gains of the leases are
    modelled already; `pace` reckons how long they were away."""
    row_of = {device: index for index, row in enumerate(rows) for device in row.devices}
    marks = [
        _Mark(at=at, row=row, lease=lease, home=home)
        for lease in leases
        for at, home in ((lease.granted_at, False), (lease.released_at, True))
        if at is not None and window[0] <= at <= window[1]
        if (row := _middle(lease, row_of)) is not None
    ]
    marks.sort(key=lambda mark: mark.at)
    kept = marks[-MAX_LEASE_MARKS:]
    lent, home = [m for m in kept if not m.home], [m for m in kept if m.home]
    found = [
        (name, symbol, shape, chosen)
        for name, symbol, shape, chosen in (
            ("lent", "triangle-right", "right", lent),
            ("home again", "triangle-left", "left", home),
        )
        if chosen
    ]
    size = next((px for limit, px in SIZES_PX if len(rows) <= limit), SIZES_PX[-1][1])
    return LeaseMarks(
        traces=tuple(_trace(name, symbol, chosen, size, clock, pace) for name, symbol, _, chosen in found),
        legend=tuple({"name": name, "colour": OUTLINE, "shape": shape} for name, _, shape, _ in found),
        cut=len(kept) < len(marks),
    )


def _middle(lease: LeaseRow, row_of: Mapping[int, int]) -> float | None:
    """Devices that are lent together have one mark, in the middle of their rows; None when none of them is shown."""
    shown = [row_of[device] for device in lease.devices if device in row_of]
    return (min(shown) + max(shown)) / 2 if shown else None


def _trace(name: str, symbol: str, marks: Sequence[_Mark], size: int, clock: PageClock, pace: Pace) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [clock.axis(mark.at) for mark in marks],
        "y": [mark.row + (LIFT if mark.home else -LIFT) for mark in marks],
        "marker": {"symbol": symbol, "size": size, "color": FILL, "line": {"color": OUTLINE, "width": 1.2}},
        # a click tells of its lease
        "customdata": [mark.lease.lease for mark in marks],
        "text": [_text(mark, clock, pace) for mark in marks],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _text(mark: _Mark, clock: PageClock, pace: Pace) -> str:
    lease = mark.lease
    head = f"<b>lease {lease.lease}</b> · {DIRECTION_WORDS[lease.direction]}: {device_list(lease.devices)}"
    if not mark.home:
        return "<br>".join([head, f"lent {clock.time(mark.at)}", *_reason(lease.reason)]) + pace.hover
    away = duration(pace.seconds(max(0.0, mark.at - lease.granted_at)))
    out = f"home again {clock.time(mark.at)}, after {away}{pace.unit}"
    gain = lease.measured_gain_s
    verdict = "" if gain is None else f" · {'won' if gain >= 0 else 'lost'} {abs(gain):.2f} s{pace.unit}"
    return "<br>".join([head, out, f"delivered {delivered(lease)}{verdict}"]) + pace.hover


@lru_cache(KEPT_REASONS)
def _reason(text: str) -> tuple[str, ...]:
    short = textwrap.shorten(text, REASON_CHARACTERS, placeholder=" …")
    return tuple(map(escape, textwrap.wrap(short, HOVER_COLUMNS)))
