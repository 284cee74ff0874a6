"""Reads what the Live page shows at one moment: one frozen frame, so that the page can keep the last one when a read
fails. Reads only what is new or visible; it draws nothing and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from app import detail
from app.binned import binned
from app.device_time import Settled, recently, since_training, with_open
from app.key_figures import RECENT_S
from app.lending import Lending, read_lending
from app.modelled import Pace, is_emulated, pace_of
from app.runs_table import engine_silent, state_of
from storage.reader import TelemetryReader
from storage.records import DeviceRow, DeviceState, EngineRow, EvalRow, RunRow, StepRow
from storage.words import COLUMNS, IDLE_COLUMNS, TERMINAL

VIEWPORT_MARGIN = 0.5
"""Part of a zoomed window that is read on either side, so that a small pan shows data at once."""

HEATMAP_BINS = 120
"""A cell of the bubble heatmap is wide enough to point at."""

BUBBLES_EVERY_S, BUBBLES_PART = 3.0, 0.2
"""The whole run is read again after so many seconds, or after this part of a cell of the heatmap if that is longer."""

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

    @property
    def stale_at(self) -> float:
        """When it is read again, unix seconds."""
        return self.read_at + max(BUBBLES_EVERY_S, self.plan.bin_s * BUBBLES_PART)


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
    settled: Settled | None
    """The part of `whole` that is not read again."""
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
        return engine_silent(self.run, self.engine, self.read_at)

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
    # of one moment: a span that closed between two queries would be counted open and closed
    with reader.one_moment():
        return _read(reader, run, view, now, last)


def _open_states(reader: TelemetryReader, run: RunRow) -> list[DeviceState]:
    """Open spans; a run that is over has none."""
    return [] if run.state in TERMINAL else reader.device_states(run.run_id)


def _read(reader: TelemetryReader, run: RunRow, view: View, now: float, last: Frame | None) -> Frame:
    engine = reader.engine()
    state = state_of(run, engine, now)
    states = _open_states(reader, run)
    devices = sorted(reader.devices(run.run_id), key=lambda d: d.device)
    steps = _steps(reader, run, last)
    as_of = max([s.seen_at for s in states] + [s.t_end for s in steps[-1:]], default=None)
    end = _end(run, state, now, as_of)
    whole: dict[int, dict[str, float]] = {}
    recent: dict[int, dict[str, float]] = {}
    settled = last.settled if last is not None and last.run.run_id == run.run_id else None
    # a run that is over is measured until its last step, as its result is
    until = run.measured_until if run.state in TERMINAL and run.measured_until else end
    if run.training_at is not None and until > run.training_at:
        settled, closed = since_training(reader, run, states, until, settled)
        whole = with_open(closed, states, run.training_at, until)
        recent = whole
        if until - RECENT_S > run.training_at:
            recent_from, closed = recently(reader, run, until)
            recent = with_open(closed, states, recent_from, until)
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
        settled=settled,
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
    if kept is not None and kept.rows == rows and run.state not in TERMINAL and now < kept.stale_at:
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
