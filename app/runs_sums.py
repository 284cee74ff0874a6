"""What each run of the table came to, without summing what was summed before. Reads; draws nothing.

    over, with a result    figures of the result, read in one query, kept for ever
    over, without one      summed once from telemetry, kept for ever; as many at a time as there is time for
    going on               summed at every look, the newest first

A page of thousands of runs must open at once, so summing has a budget; what it leaves out is told, and comes next time.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, replace

import streamlit as st

from app.key_figures import tokens_per_s, total
from app.modelled import pace_of
from app.runs_table import NOTHING, Figures, Listed, sampled, state_of
from planner.bubbles import measured_bubbles
from storage.database import StorageError
from storage.mailbox import Mailbox
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import EngineRow, RunRow
from storage.run_list import FinalFigures
from storage.words import IDLE_CAUSES, TERMINAL

BUDGET_S = 0.25
"""Of summing at one look: a page with a thousand interrupted runs still opens within the second."""

KEPT_RUNS = 20_000
"""Figures kept in memory, about a kilobyte each: more runs than anybody keeps in one folder."""

Stamp = tuple[object, ...]
"""Another value when a run has moved on."""


class Kept:
    """Figures that were read or summed, shared by every reader of the page; the oldest go first."""

    def __init__(self) -> None:
        self._figures: OrderedDict[tuple[str, str], tuple[Stamp, Figures]] = OrderedDict()
        self._lock = threading.Lock()
        self.listing: tuple[object, Listing] | None = None
        """The newest list that any tab has read, and what it was read of: another tab does not read it anew."""

    def get(self, folder: str, run_id: str, stamp: Stamp) -> Figures | None:
        """The figures of a run that has not moved on since."""
        with self._lock:
            found = self._figures.get((folder, run_id))
        return found[1] if found is not None and found[0] == stamp else None

    def last(self, folder: str, run_id: str) -> Figures | None:
        """Its newest figures, however old they are."""
        with self._lock:
            found = self._figures.get((folder, run_id))
        return found[1] if found is not None else None

    def put(self, folder: str, run_id: str, stamp: Stamp, figures: Figures) -> None:
        with self._lock:
            self._figures[folder, run_id] = (stamp, figures)
            self._figures.move_to_end((folder, run_id))
            while len(self._figures) > KEPT_RUNS:
                self._figures.popitem(last=False)


@st.cache_resource(show_spinner=False)
def shared() -> Kept:
    """The one of this process."""
    return Kept()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Every run of a folder at one moment."""

    runs: list[Listed]
    """Newest first."""
    waiting: int
    """Runs whose figures are still to be summed."""
    marks_problem: StorageError | None = None
    """Why tags and notes cannot be read; they are missing then."""


def read_listing(data: DataDir, kept: Kept, now: float, *, budget_s: float = BUDGET_S) -> Listing:
    """Every run with its figures, tags and note. Raises what the reader raises; tags are an extra and never do."""
    folder = str(data.telemetry_db)
    with TelemetryReader(data.telemetry_db) as reader:
        engine, listed = reader.engine(), reader.listed_runs()
        states = {each.run.run_id: state_of(each.run, engine, now) for each in listed}
        stamps = {each.run.run_id: _stamp(each.run, each.has_result) for each in listed}
        ended = [e.run for e in listed if e.has_result and kept.get(folder, e.run.run_id, stamps[e.run.run_id]) is None]
        final = reader.final_figures([run.run_id for run in ended])
        found: dict[str, Figures] = {}
        for run in ended:
            if (figures := final.get(run.run_id)) is not None and (told := of_result(run, figures)) is not None:
                kept.put(folder, run.run_id, stamps[run.run_id], told)
        deadline = time.monotonic() + budget_s
        waiting = 0
        # those that go on first: their figures are what somebody looks at
        for each in sorted(listed, key=lambda e: states[e.run.run_id] in TERMINAL):
            run = each.run
            over = states[run.run_id] in TERMINAL
            known = kept.get(folder, run.run_id, stamps[run.run_id]) if over else None
            if known is None and run.training_at is None:
                known = NOTHING
            if known is None and time.monotonic() < deadline:
                known = summed(reader, run, until(run, engine, now, over=over))
                kept.put(folder, run.run_id, stamps[run.run_id], known)
            if known is None:
                waiting += 1
                known = kept.last(folder, run.run_id)
            if known is not None:
                found[run.run_id] = known
    runs = [Listed(run=each.run, state=states[each.run.run_id], figures=found.get(each.run.run_id)) for each in listed]
    return with_marks(Listing(runs=runs, waiting=waiting), data)


def with_marks(listing: Listing, data: DataDir) -> Listing:
    """The same runs with the tags and notes that they have now, none where those cannot be read."""
    tags, notes, problem = read_marks(data)
    runs = [
        each
        if (told := (tags.get(each.run.run_id, ()), notes.get(each.run.run_id, ""))) == (each.tags, each.note)
        else replace(each, tags=told[0], note=told[1])
        for each in listing.runs
    ]
    return replace(listing, runs=runs, marks_problem=problem)


def read_marks(data: DataDir) -> tuple[dict[str, tuple[str, ...]], dict[str, str], StorageError | None]:
    """Tags and notes by run, none where they cannot be read, and why."""
    if not data.control_db.exists():
        return {}, {}, None
    try:
        with Mailbox(data.control_db) as mailbox:
            return mailbox.all_tags(), mailbox.all_notes(), None
    except StorageError as error:
        return {}, {}, error


def of_result(run: RunRow, final: FinalFigures) -> Figures | None:
    """Figures of a stored result, which are modelled for emulated devices, in the seconds that telemetry holds. None
    where the result lacks the device time that its shares are of: that must be summed."""
    if final.idle_fraction is not None and final.device_s is None:
        return None
    scale = pace_of(run).scale or 1.0
    return Figures(
        idle=final.idle_fraction,
        by_cause=final.by_cause,
        device_s=None if final.device_s is None else final.device_s * scale,
        structural=final.structural_fraction,
        residual=final.residual_fraction,
        tokens_per_s=None if final.tokens_per_s is None else final.tokens_per_s / scale,
        rewards=sampled([reward for reward in final.rewards if reward is not None]),
    )


def until(run: RunRow, engine: EngineRow | None, now: float, *, over: bool) -> float:
    """To when a run's device time counts: to its last step; before the first one to its end, or to now."""
    ended = run.measured_until or run.ended_at
    if ended is not None:
        return ended
    beat = engine.beat_at if engine is not None else None
    return min(now, beat) if over and beat is not None else now


def summed(reader: TelemetryReader, run: RunRow, end: float) -> Figures:
    """Figures from telemetry, of a run without a stored result, from its first possible rollout to `end`."""
    steps = reader.steps(run.run_id)
    if run.training_at is None or end <= run.training_at:
        seconds = {}
    else:
        seconds = reader.kind_seconds(run.run_id, run.training_at, end, quick=True)
    sums = total(seconds)
    device_s = sum(sums.values())
    by_cause: dict[str, float] = {}
    idle, parts = None, None
    if device_s > 0:
        by_cause = {c: s / device_s for c in IDLE_CAUSES if (s := sums.get(f"idle_{c}", 0.0)) > 0}
        idle = min(1.0, sum(by_cause.values()))
        pools = {device.device: device.pool for device in reader.devices(run.run_id)}
        parts = measured_bubbles(seconds, pools, groups=sum(step.groups for step in steps), idle_fraction=idle)
    return Figures(
        idle=idle,
        by_cause=by_cause,
        device_s=device_s if device_s > 0 else None,
        structural=parts.structural if parts else None,
        residual=parts.residual if parts else None,
        tokens_per_s=tokens_per_s(steps, run.staleness or 0.0),
        rewards=sampled([step.reward_mean for step in steps if step.reward_mean is not None]),
    )


def _stamp(run: RunRow, has_result: bool) -> Stamp:
    return has_result, run.state, run.ended_at, run.measured_until, run.steps
