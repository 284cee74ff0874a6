"""Reads what the Live page shows at one moment: one frozen frame, so that the page can keep the last one when a read
fails. Reads only what is new or visible; it draws nothing and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from app import detail
from app.binned import binned
from app.key_figures import RECENT_S, Sums
from app.lending import Lending, read_lending
from app.modelled import Pace, is_emulated, pace_of
from storage.liveness import effective_state, is_silent
from storage.reader import TelemetryReader
from storage.records import DeviceRow, DeviceState, EngineRow, EvalRow, RunRow, StepRow
from storage.words import COLUMNS, IDLE_COLUMNS, TERMINAL

VIEWPORT_MARGIN = 0.5
"""Part of a zoomed window that is read on either side, so that a small pan shows data at once."""

HEATMAP_BINS = 120
"""A cell of the bubble heatmap is wide enough to point at."""

BUBBLES_EVERY_S = 3.0
"""Seconds between two readings of the whole run."""

EXACT_DEVICES = 64
"""More devices than this make a hundred thousand spans in the last minutes: their sums are right to a millisecond."""

READ_TRIES = 3
"""A device changes what it does a few times a second, and one frame reads in milliseconds."""

LATE_S = 8.0
"""Workers report about every second; telemetry this old while the engine beats is late."""

IDLE = slice(COLUMNS.index(IDLE_COLUMNS[0]), len(COLUMNS))
"""The idle columns, which are the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the reader chose to see."""

    window_s: float | None
    """Length of the live window, seconds; None for the whole run."""
    viewport: tuple[float, float] | None = None
    """Zoomed window, unix seconds; None to follow."""
    opened: str | None = None
    """Key of the group of rows that is open."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bubbles:
    """What the bubble heatmap draws."""

    read_at: float
    """Unix seconds."""
    rows: list[detail.Row]
    """Its rows."""
    plan: detail.Plan
    """Its bins."""
    seconds: np.ndarray
    """float64 [rows, bins, COLUMNS]."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frame:
    """Everything the live part of the page draws."""

    run: RunRow
    """As stored."""
    engine: EngineRow | None
    """The current engine life."""
    state: str
    """The run's effective state."""
    read_at: float
    """Unix seconds."""
    end: float
    """End of what is shown: now, or when the run ended or was last heard of."""
    as_of: float | None
    """Newest device time, unix seconds; None before the first."""
    devices: list[DeviceRow]
    """Sorted by index."""
    device_states: list[DeviceState]
    """Open spans."""
    steps: list[StepRow]
    """In order."""
    evals: list[EvalRow]
    """In order."""
    recent: dict[int, dict[str, float]]
    """Per device, column -> seconds of the last minutes."""
    whole: dict[int, dict[str, float]]
    """Per device, column -> seconds since the first rollout could start."""
    window: tuple[float, float]
    """Window of the timeline when it is not zoomed, unix seconds."""
    rows: list[detail.Row]
    """Rows of the timeline."""
    plan: detail.Plan
    """How the timeline was read."""
    seconds: np.ndarray
    """float64 [rows, bins, COLUMNS]: exact device-seconds of the timeline's bins."""
    bubbles: Bubbles | None
    """The whole run in coarse bins; None before the first rollout could start."""
    lending: Lending
    """Decisions, and the leases that the timeline marks."""

    @property
    def pace(self) -> Pace:
        """How the seconds of its devices relate to those that are stored."""
        return pace_of(self.run)

    @property
    def live(self) -> bool:
        """Whether more is coming."""
        return self.state not in TERMINAL

    @property
    def engine_silent(self) -> bool:
        """Whether the run's engine should be beating and is not."""
        return self.run.state not in TERMINAL and is_silent(self.engine.beat_at if self.engine else None, self.read_at)

    @property
    def telemetry_late_s(self) -> float | None:
        """Age of the newest device time when that is too old, else None."""
        if self.state not in ("warming_up", "running", "pausing", "paused") or self.as_of is None:
            return None
        age = self.read_at - self.as_of
        return age if age > LATE_S else None


def read_frame(reader: TelemetryReader, run: RunRow, view: View, *, now: float, last: Frame | None) -> Frame:
    """Read one frame. `last` is what the call before returned for this run, None at first.

    Raises what the reader raises.
    """
    for _ in range(READ_TRIES):
        frame = _read_once(reader, run, view, now, last)
        # a span that closed between two queries would be counted open and closed
        if _beginnings(frame.device_states) == _beginnings(_open_states(reader, run)):
            break
    return frame


def _open_states(reader: TelemetryReader, run: RunRow) -> list[DeviceState]:
    """Open spans; a run that is over has none."""
    return [] if run.state in TERMINAL else reader.device_states(run.run_id)


def _beginnings(states: list[DeviceState]) -> list[tuple[int, float]]:
    return [(s.device, s.since) for s in states]


def _read_once(reader: TelemetryReader, run: RunRow, view: View, now: float, last: Frame | None) -> Frame:
    engine = reader.engine()
    state = effective_state(
        run.state, engine.beat_at if engine else None, now, run.engine_id, engine.engine_id if engine else None
    )
    states = _open_states(reader, run)
    devices = sorted(reader.devices(run.run_id), key=lambda d: d.device)
    steps = _steps(reader, run, last)
    as_of = max([s.seen_at for s in states] + [s.t_end for s in steps[-1:]], default=None)
    end = _end(run, state, now, as_of)
    whole: dict[int, dict[str, float]] = {}
    recent: dict[int, dict[str, float]] = {}
    # a run that is over is measured until its last step, as its result is
    until = run.measured_until if run.state in TERMINAL and run.measured_until else end
    if run.training_at is not None and until > run.training_at:
        over = run.state in TERMINAL
        whole = _kind_seconds(reader, run.run_id, states, run.training_at, until, quick=not over)
        recent_from = max(run.training_at, until - RECENT_S)
        recent = whole
        if recent_from > run.training_at:
            many = len(devices) > EXACT_DEVICES
            recent = _kind_seconds(reader, run.run_id, states, recent_from, until, quick=many)
    window = (end - view.window_s if view.window_s else _begin(run, end), end)
    rows = detail.chart_rows(devices, opened=view.opened, emulated=is_emulated(run))
    plan, seconds = binned(reader, run.run_id, rows, _read_window(window, view), states, end)
    return Frame(
        run=run,
        engine=engine,
        state=state,
        read_at=now,
        end=end,
        as_of=as_of,
        devices=devices,
        device_states=states,
        steps=steps,
        evals=reader.evals(run.run_id),
        recent=recent,
        whole=whole,
        window=window,
        rows=rows,
        plan=plan,
        seconds=seconds,
        bubbles=_bubbles(reader, run, rows, states, until, now, last),
        lending=read_lending(reader, run, (plan.t0, plan.t1), now=now, last=_last_lending(run, last)),
    )


def _bubbles(
    reader: TelemetryReader,
    run: RunRow,
    rows: list[detail.Row],
    states: list[DeviceState],
    until: float,
    now: float,
    last: Frame | None,
) -> Bubbles | None:
    """The last one again while it is young: over a whole run a second more changes nothing that one could see."""
    kept = last.bubbles if last is not None and last.run.run_id == run.run_id else None
    if kept is not None and kept.rows == rows and now - kept.read_at < BUBBLES_EVERY_S and run.state not in TERMINAL:
        return kept
    if run.training_at is None or until <= run.training_at:
        return None
    window = (run.training_at, until)
    plan, seconds = binned(reader, run.run_id, rows, window, states, until, HEATMAP_BINS)
    return Bubbles(read_at=now, rows=rows, plan=plan, seconds=seconds)


def _last_lending(run: RunRow, last: Frame | None) -> Lending | None:
    """What was read last, if it may be kept: a run that is over is read for good, so it is counted again."""
    same = last is not None and last.run.run_id == run.run_id and run.state not in TERMINAL
    return last.lending if last is not None and same else None


def refreshed(frame: Frame, now: float) -> Frame:
    """The same frame read again without reading: for a run that is over."""
    return replace(frame, read_at=now)


def _steps(reader: TelemetryReader, run: RunRow, last: Frame | None) -> list[StepRow]:
    """All steps, reading only those after the last one known."""
    known = last.steps if last is not None and last.run.run_id == run.run_id else []
    if not known:
        return reader.steps(run.run_id)
    return known + [s for s in reader.steps(run.run_id, since=known[-1].step) if s.step > known[-1].step]


def _end(run: RunRow, state: str, now: float, as_of: float | None) -> float:
    if state not in TERMINAL:
        return now
    known = [t for t in (run.ended_at, as_of if run.ended_at is None else None) if t is not None]
    return max(known, default=run.measured_until or run.created_at or now)


def _begin(run: RunRow, end: float) -> float:
    begin = run.training_at or run.started_at or run.created_at or end - RECENT_S
    return min(begin, end - 1.0)


def _read_window(window: tuple[float, float], view: View) -> tuple[float, float]:
    if view.viewport is None:
        return window
    low, high = view.viewport
    margin = max(high - low, 1e-3) * VIEWPORT_MARGIN
    return low - margin, high + margin


def _kind_seconds(
    reader: TelemetryReader, run_id: str, states: list[DeviceState], t0: float, t1: float, *, quick: bool = False
) -> dict[int, dict[str, float]]:
    """Sums of [t0, t1), exact or (quick) right to a millisecond a column.

    Open spans are included as far as their workers confirmed them.
    """
    opened: dict[int, dict[str, float]] = {}
    for span in detail.open_spans(run_id, states, t1):
        seconds = span.t1 - max(span.t0, t0)
        if seconds > 0:
            opened[span.device] = {span.column: seconds}
    return _added(reader.kind_seconds(run_id, t0, t1, quick=quick), opened)


def _added(a: Mapping[int, Sums], b: Mapping[int, Sums]) -> dict[int, dict[str, float]]:
    result = {device: dict(sums) for device, sums in a.items()}
    for device, sums in b.items():
        mine = result.setdefault(device, {})
        for column, seconds in sums.items():
            mine[column] = mine.get(column, 0.0) + seconds
    return result
