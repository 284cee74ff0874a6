"""Reads what the Timeline shows at one moment: one frozen scene. Reads what is visible and draws nothing.

One reading of a window gives the raster, the heatmap and the sums, so that they cannot disagree; a second one, of the
whole run, is kept for a while. Nothing here scans a run's raw spans beyond the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from app import detail
from app.binned import binned
from app.device_time import Settled, since_training, with_open
from app.lending import MAX_LEASE_MARKS
from app.lost_time import bins_inside, part, sums
from app.modelled import Pace, is_emulated, pace_of
from app.runs_table import engine_silent, state_of
from app.timeline_colours import PHASES, SCHEMES, Scheme, majority_of, versions
from app.timeline_events import Event, events_of
from app.timeline_rows import timeline_rows
from app.timeline_url import View
from storage.reader import TelemetryReader
from storage.records import DeviceRow, DeviceState, EngineRow, LeaseRow, RunRow, Span, StepRow
from storage.words import RESOLUTIONS_S, TERMINAL

MARGIN = 0.25
"""Part of an exact window that is read on either side, so that a small pan shows data at once."""

READ_CELLS = 130_000
"""Devices x rollup bins that are read and added up within 50 ms, into however few rows."""

SETTLED_S = 10.0
"""A span is stored within seconds of its end; after ten none is on its way."""

RUN_EVERY_S = 5.0
"""Seconds between two sums of the whole run: a second more of an hour changes nothing that one could see."""

TROUBLE = ("warning", "error")
"""Levels of the log that may tell of a failure."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WholeRun:
    """Sums of the whole run."""

    read_at: float
    """Unix seconds."""
    window: tuple[float, float]
    """From the first possible rollout to the last step or now, unix seconds."""
    devices: Mapping[int, Mapping[str, float]]
    """Device -> column -> seconds."""
    settled: Settled | None
    """The part of it that is not read again."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """Everything that the Timeline draws."""

    run: RunRow
    """As stored."""
    engine: EngineRow | None
    """The current engine life."""
    state: str
    """The run's effective state."""
    read_at: float
    """Unix seconds."""
    begin: float
    """Where the whole run begins, unix seconds."""
    end: float
    """End of what can be shown: now, or when the run ended or was last heard of."""
    as_of: float | None
    """Newest device time, unix seconds; None before the first."""
    view: View
    """What was asked for."""
    window: tuple[float, float]
    """What is shown, unix seconds."""
    devices: list[DeviceRow]
    """Sorted by index."""
    rows: list[detail.Row]
    """Rows of the charts."""
    plan: detail.Plan
    """How the raster was read; it may reach beyond the window."""
    seconds: np.ndarray
    """float64 [rows, bins, COLUMNS]: exact device-seconds of the plan's bins."""
    inside: tuple[int, int]
    """First bin of the window and the one after its last: what every number of the window is counted over."""
    codes: np.ndarray
    """uint8 [rows, bins]: categories of `scheme`."""
    scheme: Scheme
    """What the colours mean."""
    scheme_note: str
    """Why it is not the one that was asked for; empty when it is."""
    steps: list[StepRow]
    """All, in order."""
    leases: list[LeaseRow]
    """Granted or home again in what was read, oldest first; costs and gains of emulated devices modelled."""
    events: list[Event]
    """Checkpoints and failures in what was read."""
    pools: Mapping[int, Mapping[str, float]] | None
    """Device -> column -> seconds of the window; None where no device was asked about."""
    whole: WholeRun | None
    """None before the first rollout could start."""
    opened: list[Span]
    """What devices are doing, as spans that end where their workers last said so."""

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
    def final(self) -> bool:
        """Whether reading it again would find the same: an exact window that no span can reach any more."""
        if self.view.exact is None or self.view.sums == "run" or self.as_of is None:
            return False
        return self.plan.t1 < min([self.as_of, *(span.t0 for span in self.opened)]) - SETTLED_S

    @property
    def whole_counts(self) -> bool:
        """Whether lost time is counted over the whole run."""
        return self.view.sums == "run" or self.view.shows_all

    @property
    def listed(self) -> tuple[float, float]:
        """Of what the worst bubbles are listed, unix seconds: of what lost time is counted over, or of the window that
        one of them was chosen from."""
        whole = self.whole.window if self.whole is not None and self.whole_counts else self.window
        return self.view.listed or whole

    @property
    def counted(self) -> detail.Plan:
        """The bins of the window, whose edges may lie a little beyond it."""
        return part(self.plan, self.inside)

    @property
    def known(self) -> np.ndarray:
        """float64 [rows, bins, COLUMNS] of these bins."""
        return self.seconds[:, self.inside[0] : self.inside[1]]

    @property
    def lost(self) -> dict[str, float]:
        """Column -> device-seconds of the rows and the window that are shown."""
        return sums(self.known)


def read_scene(reader: TelemetryReader, run: RunRow, view: View, *, now: float, last: Scene | None) -> Scene:
    """Read one scene. `last`: what the call before returned for this run, None at first. Raises what the reader
    raises."""
    # of one moment: a span that closed between two queries would be counted open and closed
    with reader.one_moment():
        return _read(reader, run, view, now, last)


def _read(reader: TelemetryReader, run: RunRow, view: View, now: float, last: Scene | None) -> Scene:
    engine = reader.engine()
    states = [] if run.state in TERMINAL else reader.device_states(run.run_id)
    state = state_of(run, engine, now)
    devices = sorted(reader.devices(run.run_id), key=lambda d: d.device)
    steps = _steps(reader, run, last)
    as_of = max([s.seen_at for s in states] + [s.t_end for s in steps[-1:]], default=None)
    end = _end(run, state, now, as_of)
    begin = min(run.training_at or run.started_at or run.created_at or end, end - 1.0)
    window = view.bounds(begin, end)
    rows = timeline_rows(devices, view.rows, opened=view.opened, emulated=is_emulated(run))
    margin = (window[1] - window[0]) * MARGIN if view.exact is not None else 0.0
    read = (window[0] - margin, window[1] + margin)
    follows = view.exact is None and state not in TERMINAL
    enough = None if follows else fine_enough(len(devices), read[1] - read[0])
    plan, seconds = binned(reader, run.run_id, rows, read, states, end, coarsest_s=enough)
    inside = bins_inside(plan, window)
    opened = detail.open_spans(run.run_id, states, end)
    codes, scheme, note = _coloured(reader, run, view, rows, plan, seconds, opened)
    logs = reader.logs_in(run.run_id, plan.t0, plan.t1, TROUBLE)
    whole = _whole_run(reader, run, states, end, now, last)
    return Scene(
        run=run,
        engine=engine,
        state=state,
        read_at=now,
        begin=begin,
        end=end,
        as_of=as_of,
        view=view,
        window=window,
        devices=devices,
        rows=rows,
        plan=plan,
        seconds=seconds,
        inside=inside,
        codes=codes,
        scheme=scheme,
        scheme_note=note,
        steps=steps,
        leases=[
            pace_of(run).lease(lease)
            for lease in reader.leases_in(run.run_id, plan.t0, plan.t1, limit=MAX_LEASE_MARKS + 1)
        ],
        events=events_of(seconds, rows, plan, logs, run, pace_of(run)),
        pools=_per_device(reader, run, rows, part(plan, inside), seconds[:, inside[0] : inside[1]], states, devices),
        whole=whole,
        opened=opened,
    )


def fine_enough(devices: int, length_s: float) -> int:
    """The finest rollups of which a window is read within `READ_CELLS`, seconds; what follows a live run may cost more
    at first, since it is kept and only added to."""
    return next((res for res in RESOLUTIONS_S if devices * length_s / res <= READ_CELLS), RESOLUTIONS_S[-1])


def _coloured(
    reader: TelemetryReader,
    run: RunRow,
    view: View,
    rows: list[detail.Row],
    plan: detail.Plan,
    seconds: np.ndarray,
    opened: list[Span],
) -> tuple[np.ndarray, Scheme, str]:
    """Codes, what they mean, and why it is not what was asked for."""
    if view.colour != "version":
        scheme = SCHEMES[view.colour]
        return majority_of(seconds, scheme), scheme, ""
    if plan.source == "raw":
        spans = reader.spans(run.run_id, plan.t0, plan.t1, detail.MAX_RAW_SPANS + 1)
        found = versions([*spans, *opened], rows, plan)
        why = "there are more versions in this window than colours can tell: zoom in" if found is None else ""
    else:
        found = None
        why = (
            "raw spans of this window were deleted, and sums know no versions"
            if reader.raw_gone(run.run_id, plan.t0, plan.t1)
            else f"the window holds more than {detail.MAX_RAW_SPANS:,} spans, and sums know no versions: zoom in"
        )
    if found is None:
        return majority_of(seconds, PHASES), PHASES, f"Phases are shown instead of versions: {why}."
    return *found, ""


def _per_device(
    reader: TelemetryReader,
    run: RunRow,
    rows: list[detail.Row],
    plan: detail.Plan,
    seconds: np.ndarray,
    states: list[DeviceState],
    devices: list[DeviceRow],
) -> dict[int, dict[str, float]] | None:
    """Of every device in the window: from the bins when each has a row, else asked for. None while some are hidden."""
    if sum(len(row.devices) for row in rows) < len(devices):
        return None
    if all(len(row.devices) == 1 for row in rows):
        return {row.devices[0]: sums(seconds[i : i + 1]) for i, row in enumerate(rows)}
    return with_open(reader.kind_seconds(run.run_id, plan.t0, plan.t1, quick=True), states, plan.t0, plan.t1)


def _whole_run(
    reader: TelemetryReader, run: RunRow, states: list[DeviceState], end: float, now: float, last: Scene | None
) -> WholeRun | None:
    kept = last.whole if last is not None and last.run.run_id == run.run_id else None
    over = run.state in TERMINAL
    # a run that is over is measured until its last step, as its result is
    until = run.measured_until if over and run.measured_until else end
    if run.training_at is None or until <= run.training_at:
        return None
    window = (run.training_at, until)
    if kept is not None and (kept.window == window or (not over and now - kept.read_at < RUN_EVERY_S)):
        return kept
    settled, closed = since_training(reader, run, states, until, kept.settled if kept is not None else None)
    return WholeRun(read_at=now, window=window, devices=with_open(closed, states, *window), settled=settled)


def _steps(reader: TelemetryReader, run: RunRow, last: Scene | None) -> list[StepRow]:
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
