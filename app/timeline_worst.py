"""The worst bubbles: the longest stretches in which a device waited for one and the same cause.

Found from raw spans, the longest pieces first, so that a run of a million spans is asked for a few thousand; each
stretch that is shown is then read to both its ends. Where raw spans are gone there is no list, and the page says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from storage.reader import TelemetryReader
from storage.records import RunRow, Span
from storage.words import TERMINAL

SHOWN = 10
"""Bubbles that are listed."""

PIECES = 800
"""Pieces that are read: a stretch of an hour has sixty of them."""

CANDIDATES = 120
"""Stretches that may become one of the shown: devices that wait together are one bubble."""

EVERY_S, SHARE = 10.0, 0.03
"""Seconds between two searches, and the largest part of a session's time that they may take: the longest stretches of
minutes do not change by the second, and a million spans take half a second."""

TOUCH_S = 0.002
"""Pieces of a device that lie closer than this belong together: a worker's clock is cut at microseconds."""

TOGETHER_S, TOGETHER_SHARE = 0.05, 0.02
"""Stretches that begin and end within this, or this part of their length, are one bubble of several devices."""

MOST_PIECES = 1500
"""Of one stretch: a day of it on either side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubble:
    """Devices that waited together."""

    devices: tuple[int, ...]
    """Indices inside the run."""
    cause: str
    """One of `words.IDLE_CAUSES`."""
    t0: float
    """Begin of the first, unix seconds."""
    t1: float
    """End of the last, unix seconds."""
    device_s: float
    """Device-seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Consecutive idle spans of one device with one cause."""

    device: int
    """Index inside the run."""
    cause: str
    """One of `words.IDLE_CAUSES`."""
    t0: float
    """Unix seconds."""
    t1: float
    """Unix seconds."""

    @property
    def seconds(self) -> float:
        return self.t1 - self.t0


def stretches(pieces: Iterable[Span]) -> list[Stretch]:
    """Idle spans in any order, joined where one goes on as the other; the longest first. Other spans add nothing."""
    found: list[Stretch] = []
    for piece in sorted((p for p in pieces if p.kind == "idle"), key=lambda p: (p.device, p.t0)):
        last = found[-1] if found else None
        same = last is not None and last.device == piece.device and last.cause == piece.cause
        if last is not None and same and piece.t0 - last.t1 <= TOUCH_S:
            found[-1] = Stretch(device=last.device, cause=last.cause, t0=last.t0, t1=max(last.t1, piece.t1))
        else:
            found.append(Stretch(device=piece.device, cause=piece.cause or "", t0=piece.t0, t1=piece.t1))
    return sorted(found, key=lambda s: (-s.seconds, s.t0, s.device))


def together(found: Sequence[Stretch], limit: int = SHOWN) -> list[Bubble]:
    """The worst first, by device-seconds; stretches of several devices that begin and end together are one."""
    groups: list[list[Stretch]] = []
    for stretch in sorted(found, key=lambda s: (s.cause, s.t0, s.device)):
        group = next((g for g in reversed(groups[-8:]) if _coincide(g[0], stretch)), None)
        if group is None:
            groups.append([stretch])
        else:
            group.append(stretch)
    bubbles = [
        Bubble(
            devices=tuple(sorted(s.device for s in group)),
            cause=group[0].cause,
            t0=min(s.t0 for s in group),
            t1=max(s.t1 for s in group),
            device_s=sum(s.seconds for s in group),
        )
        for group in groups
    ]
    return sorted(bubbles, key=lambda b: (-b.device_s, b.t0, b.devices))[:limit]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Worst:
    """The worst bubbles of a window or a run."""

    read_at: float
    """Unix seconds."""
    took_s: float
    """What the search took, seconds."""
    window: tuple[float, float]
    """Unix seconds."""
    devices: frozenset[int]
    """Those that were looked at."""
    state: str
    """The run's, as stored."""
    bubbles: list[Bubble]
    """Worst first."""
    gone: tuple[float, float] | None
    """From and until when raw spans are missing inside the window; None where all are there."""


def read_worst(
    reader: TelemetryReader,
    run: RunRow,
    window: tuple[float, float],
    opened: Sequence[Span],
    devices: frozenset[int],
    *,
    sliding: bool,
    now: float,
    last: Worst | None,
) -> Worst:
    """Of a window, unix seconds, each bubble in its whole length as far as it counts. opened: open spans. devices:
    those that are looked at. sliding: whether the window goes with the time. last: what was found before for this run,
    which is kept for the same window, and for one that only slid on while it is young."""
    if last is not None and (last.devices, last.state) == (devices, run.state):
        slid = max(abs(last.window[0] - window[0]), abs(last.window[1] - window[1]))
        every = max(EVERY_S, last.took_s / SHARE)
        same = slid == 0 and not any(span.t0 < window[1] for span in opened)
        if same or (now - last.read_at < every and slid <= (every if sliding else 0.0)):
            return last
    began = time.perf_counter()
    pieces = reader.longest_idle(run.run_id, *window, limit=PIECES)
    idle = [span for span in opened if span.kind == "idle" and span.t1 > window[0] and span.t0 < window[1]]
    found = [s for s in stretches([*pieces, *idle]) if s.device in devices][:CANDIDATES]
    found = [_counted(run, _whole(reader, run.run_id, stretch, idle)) for stretch in found]
    return Worst(
        read_at=now,
        took_s=time.perf_counter() - began,
        window=window,
        devices=devices,
        state=run.state,
        bubbles=together([stretch for stretch in found if stretch.seconds > 0]),
        gone=reader.raw_gone(run.run_id, *window),
    )


def _whole(reader: TelemetryReader, run_id: str, stretch: Stretch, opened: Sequence[Span]) -> Stretch:
    """The stretch with its shorter pieces, which were not among the longest, and those beyond the window."""
    for _ in range(MOST_PIECES):
        before = reader.span_before(run_id, stretch.device, stretch.t0)
        after = reader.span_from(run_id, stretch.device, stretch.t1 - TOUCH_S)
        own = Span(run_id=run_id, device=stretch.device, t0=stretch.t0, t1=stretch.t1, kind="idle", cause=stretch.cause)
        around = [span for span in (before, after) if span is not None]
        mine = [span for span in (*around, *opened) if span.device == stretch.device]
        grown = next(s for s in stretches([own, *mine]) if s.t0 <= stretch.t0 and s.t1 >= stretch.t1)
        if (grown.t0, grown.t1) == (stretch.t0, stretch.t1):
            break
        stretch = grown
    return stretch


def _counted(run: RunRow, stretch: Stretch) -> Stretch:
    """The part of it that shares of idle time count: from the first possible rollout to the last step."""
    begin = run.training_at if run.training_at is not None else stretch.t0
    end = run.measured_until if run.state in TERMINAL and run.measured_until is not None else stretch.t1
    t0 = max(stretch.t0, begin)
    return replace(stretch, t0=t0, t1=max(t0, min(stretch.t1, end)))


def _coincide(one: Stretch, other: Stretch) -> bool:
    near = max(TOGETHER_S, TOGETHER_SHARE * one.seconds)
    return one.cause == other.cause and abs(one.t0 - other.t0) <= near and abs(one.t1 - other.t1) <= near
