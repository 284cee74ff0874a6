"""The runs of a comparison, read: their settings, results, steps, and idle time over the run. Reads; draws nothing.

All times are those of the devices: of emulated ones modelled, so that runs played at different speeds lie on one axis.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import streamlit as st

from app.key_figures import tokens_per_s
from app.modelled import Pace, pace_of
from app.runs_sums import summed
from app.runs_table import NOTHING, Figures, Listed
from engine.config.differences import Settings, settings_of_run
from storage import words
from storage.paths import DataDir
from storage.reader import TelemetryReader
from storage.records import RollupWindow, RunRow, StepRow
from storage.words import COLUMNS, IDLE_COLUMNS, TERMINAL

IDLE_POINTS = 40
"""Points of a line of idle time: more of them show the noise of single steps, and runs can no longer be told apart."""

MOST_BINS = 600
"""Bins read for it; longer runs are read from coarser rollups."""

KEPT = 64
"""Runs kept in memory, so that choosing one more reads one more."""

_IDLE = [COLUMNS.index(column) for column in IDLE_COLUMNS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points of a run over its life, on each of the axes on which runs can be compared; all of one length."""

    step: tuple[float, ...] = ()
    """Steps made; between two steps a fraction."""
    wall_s: tuple[float, ...] = ()
    """Seconds since its first possible rollout."""
    tokens: tuple[float, ...] = ()
    """Tokens consumed by then."""
    device_s: tuple[float, ...] = ()
    """Device-seconds since its first possible rollout."""
    values: tuple[float | None, ...] = ()
    """What is drawn over them."""

    def over(self, axis: str) -> tuple[float, ...]:
        """Positions on one of `AXES`."""
        found: tuple[float, ...] = getattr(self, axis)
        return found


AXES = {"step": "step", "wall_s": "wall time", "tokens": "tokens", "device_s": "device-hours"}
"""Fields of a line that runs can be laid over -> what the reader calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One run of a comparison."""

    run: RunRow
    """As stored, wholly."""
    state: str
    """What its stored state means now."""
    figures: Figures
    """What it lost, in stored seconds."""
    settings: Settings
    """Of its job and its operators."""
    result: Mapping[str, Any]
    """Its result fields, as far as they are known; times modelled for emulated devices."""
    reward: Line
    """Mean reward at each step; empty for devices that learn nothing."""
    idle: Line
    """Idle share of short windows, 0 to 1."""

    @property
    def pace(self) -> Pace:
        """How its seconds relate to what is shown."""
        return pace_of(self.run)

    @property
    def run_id(self) -> str:
        """Its id."""
        return self.run.run_id

    @property
    def device_s(self) -> float | None:
        """Device-seconds that its shares are of, modelled for emulated devices."""
        return None if self.figures.device_s is None else self.pace.seconds(self.figures.device_s)


class _Kept:
    """What was read of runs that have not moved on since; the one used longest ago goes first."""

    def __init__(self) -> None:
        self.found: OrderedDict[tuple[str, str], tuple[object, Compared]] = OrderedDict()
        self.lock = Lock()


@st.cache_resource(show_spinner=False)
def _kept() -> _Kept:
    return _Kept()


def read_compared(data: DataDir, listed: Sequence[Listed], now: float) -> list[Compared]:
    """Each of these runs, in their order; one that vanished meanwhile is left out. Raises what the reader raises."""
    kept, folder = _kept(), str(data.telemetry_db)
    result = []
    with TelemetryReader(data.telemetry_db) as reader:
        for each in listed:
            run = each.run
            stamp = (each.state, run.steps, run.ended_at, run.measured_until, run.config_version)
            key = folder, run.run_id
            with kept.lock:
                last = kept.found.get(key)
            if last is None or last[0] != stamp:
                found = _read(reader, each, now)
                if found is None:
                    continue
                last = (stamp, found)
            with kept.lock:
                kept.found[key] = last
                kept.found.move_to_end(key)
                while len(kept.found) > KEPT:
                    kept.found.popitem(last=False)
            result.append(last[1])
    return result


def _read(reader: TelemetryReader, listed: Listed, now: float) -> Compared | None:
    run = reader.run(listed.run.run_id)
    if run is None:
        return None
    steps, pace = reader.steps(run.run_id), pace_of(run)
    end = run.measured_until or run.ended_at or now
    figures = listed.figures or (NOTHING if run.training_at is None else summed(reader, run, end))
    devices = len(reader.devices(run.run_id))
    clock = _Positions.of(run, steps, devices, pace)
    return Compared(
        run=run,
        state=listed.state,
        figures=figures,
        settings=settings_of_run(run.job, run.settings),
        result=run.result or partial(run, steps, figures, pace, now),
        reward=Line() if pace.emulated else clock.at_steps([step.reward_mean for step in steps]),
        idle=idle_line(reader, run, clock, end),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Positions:
    """Where a moment of a run lies on each axis."""

    begin: float
    """First possible rollout, unix seconds."""
    ends: np.ndarray
    """Ends of steps, unix seconds, the beginning before them."""
    numbers: np.ndarray
    """Steps made by then."""
    tokens: np.ndarray
    """Tokens consumed by then."""
    devices: int
    pace: Pace

    @classmethod
    def of(cls, run: RunRow, steps: Sequence[StepRow], devices: int, pace: Pace) -> _Positions:
        begin = run.training_at if run.training_at is not None else (steps[0].t_start if steps else 0.0)
        first = steps[0].step - 1 if steps else 0
        tokens = np.cumsum([0, *(step.prompt_tokens + step.response_tokens for step in steps)])
        return cls(
            begin=begin,
            ends=np.array([begin, *(step.t_end for step in steps)], float),
            numbers=np.array([first, *(step.step for step in steps)], float),
            tokens=tokens.astype(float),
            devices=devices,
            pace=pace,
        )

    def at_steps(self, values: Sequence[float | None]) -> Line:
        """A value at the end of each step."""
        return self.at(self.ends[1:], values)

    def at(self, moments: np.ndarray, values: Sequence[float | None]) -> Line:
        """Values at these moments, unix seconds."""
        wall_s = [self.pace.seconds(float(seconds)) for seconds in moments - self.begin]
        return Line(
            step=tuple(np.interp(moments, self.ends, self.numbers).tolist()),
            wall_s=tuple(wall_s),
            tokens=tuple(np.interp(moments, self.ends, self.tokens).tolist()),
            device_s=tuple(seconds * self.devices for seconds in wall_s),
            values=tuple(values),
        )


def idle_line(reader: TelemetryReader, run: RunRow, positions: _Positions, end: float) -> Line:
    """Idle share in at most `IDLE_POINTS` windows of equal length, from rollups; windows without telemetry are gaps."""
    begin = run.training_at
    if begin is None or end <= begin:
        return Line()
    window = _window(reader, run.run_id, begin, end)
    if window is None:
        return Line()
    # a bin that begins before the run does holds its start-up, too
    inside = window.bins * window.res >= begin
    if inside.sum() >= 2:
        bins, ms = window.bins[inside], window.ms[inside]
    else:
        bins, ms = window.bins, window.ms
    sums = ms.sum(axis=1)
    idle, known = sums[:, _IDLE].sum(axis=1).astype(float), sums.sum(axis=1).astype(float)
    per_point = -(-(int(bins[-1]) - int(bins[0]) + 1) // IDLE_POINTS)
    place = (bins - bins[0]) // per_point
    moments, values = [], []
    for number in np.unique(place):
        here = place == number
        total = known[here].sum()
        middle = bins[0] + number * per_point + min(per_point, bins[-1] - bins[0] + 1 - number * per_point) / 2
        moments.append(min(max(float(middle) * window.res, begin), end))
        values.append(float(idle[here].sum() / total) if total > 0 else None)
    return positions.at(np.array(moments), values)


def _window(reader: TelemetryReader, run_id: str, begin: float, end: float) -> RollupWindow | None:
    """The finest rollup of few enough bins that still reaches back to the beginning; retention deletes finer ones."""
    fitting = [res for res in words.RESOLUTIONS_S if (end - begin) / res <= MOST_BINS]
    for res in fitting or words.RESOLUTIONS_S[-1:]:
        window = reader.rollup(run_id, res, begin, end)
        last = res == words.RESOLUTIONS_S[-1]
        if len(window.bins) and (last or window.bins[0] * res < begin + words.RESOLUTIONS_S[-1]):
            return window
    return None


def partial(run: RunRow, steps: Sequence[StepRow], figures: Figures, pace: Pace, now: float) -> dict[str, Any]:
    """The result fields of a run that has none stored, as far as a comparison shows them; what is left out is null."""
    rate = tokens_per_s(steps, run.staleness or 0.0)
    lags = [step.lag_max for step in steps if step.lag_max is not None]
    until = run.ended_at or (now if run.state not in TERMINAL else None)
    return {
        "kind": run.kind,
        "steps": run.steps or 0,
        "tokens": sum(step.prompt_tokens + step.response_tokens for step in steps) if steps else None,
        "throughput_tokens_per_s": None if rate is None else pace.rate(rate),
        "wall_s": None if run.started_at is None or until is None else pace.seconds(until - run.started_at),
        "step_s": [pace.seconds(step.t_end - step.t_start) for step in steps],
        "reward": {"per_step": [step.reward_mean for step in steps]},
        "lag": {"max": max(lags, default=None)},
        "idle": {
            "fraction": figures.idle,
            "by_cause": dict(figures.by_cause),
            "structural_fraction": figures.structural,
            "residual_fraction": figures.residual,
            "device_s": None if figures.device_s is None else pace.seconds(figures.device_s),
        },
        "deaths": run.deaths or 0,
    }
