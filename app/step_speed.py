"""How fast each step was, and where steps lie on other axes than their number: time, tokens, device-hours.

A step's time is from the end of the one before it to its own end, as throughput counts it. Idle shares are exact where
raw spans are few, else from rollups, right to a bin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.modelled import Pace
from storage import words
from storage.reader import TelemetryReader
from storage.records import RunRow, StepRow
from storage.words import COLUMNS, IDLE_COLUMNS

MAX_RAW_SPANS = 20_000
"""Spans that are added up one by one."""

MAX_BINS = 4_000
"""Bins of rollups read at once: a tenth of a second for 256 devices."""

COMPLETE_SHARE = 0.98
"""Less than this of what is known means that raw spans are gone."""

AXES = {"step": "step", "wall": "wall time", "tokens": "tokens", "device_hours": "device-hours"}
"""Axis -> what the reader calls it."""

_IDLE = [COLUMNS.index(column) for column in IDLE_COLUMNS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Positions of steps."""

    title: str
    """With its unit."""
    x: list[float]
    """Of the end of each step."""
    zero: float
    """Of the run's beginning."""


def edges(run: RunRow, steps: Sequence[StepRow]) -> list[float]:
    """Where the run began, and the end of each step, unix seconds, never backwards."""
    if not steps:
        return []
    begin = run.training_at if run.training_at is not None else steps[0].t_start
    ends = np.maximum.accumulate([min(begin, steps[0].t_end), *(step.t_end for step in steps)])
    return [float(end) for end in ends]


def tokens_per_s(steps: Sequence[StepRow], ends: Sequence[float], pace: Pace) -> list[float | None]:
    """Prompt and response tokens of each step over its time, modelled for emulated devices; None for no time."""
    return [
        pace.rate((step.prompt_tokens + step.response_tokens) / (end - begin)) if end > begin else None
        for step, begin, end in zip(steps, ends, ends[1:], strict=False)
    ]


def axis(kind: str, steps: Sequence[StepRow], ends: Sequence[float], devices: int, pace: Pace) -> Axis:
    """Positions on one of `AXES`, modelled for emulated devices. Raises ValueError for another one."""
    words.require("axis", kind, tuple(AXES))
    if kind == "step":
        return Axis(title="step", x=[float(step.step) for step in steps], zero=float(steps[0].step - 1 if steps else 0))
    if kind == "tokens":
        counted = np.cumsum([float(step.prompt_tokens + step.response_tokens) for step in steps])
        return Axis(title="tokens of the steps so far", x=[float(n) for n in counted], zero=0.0)
    passed = [pace.seconds(end - ends[0]) for end in ends[1:]]
    if kind == "device_hours":
        return Axis(
            title=f"device-hours since training began{pace.unit}", x=[s * devices / 3600 for s in passed], zero=0.0
        )
    divisor, unit = _unit(passed[-1] if passed else 0.0)
    return Axis(title=f"{unit} since training began{pace.unit}", x=[s / divisor for s in passed], zero=0.0)


def _unit(longest_s: float) -> tuple[float, str]:
    return (1.0, "seconds") if longest_s < 300 else (60.0, "minutes") if longest_s < 3 * 3600 else (3600.0, "hours")


def idle_shares(reader: TelemetryReader, run_id: str, ends: Sequence[float]) -> list[float | None]:
    """Share of the devices' known time between each two of `ends` (unix seconds) that was idle; None where nothing is
    known. Raises what the reader raises."""
    if len(ends) < 2 or ends[-1] <= ends[0]:
        return [None] * max(0, len(ends) - 1)
    at = np.array(ends)
    if reader.count_spans(run_id, ends[0], ends[-1], MAX_RAW_SPANS + 1) <= MAX_RAW_SPANS:
        idle, known = _of_spans(reader, run_id, at)
        sums = reader.kind_seconds(run_id, ends[0], ends[-1], quick=True)
        if known[-1] >= COMPLETE_SHARE * sum(sum(columns.values()) for columns in sums.values()):
            return _shares(idle, known)
    return _shares(*_of_rollups(reader, run_id, at))


def _of_spans(reader: TelemetryReader, run_id: str, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Idle and known device-seconds up to each moment."""
    spans = reader.spans(run_id, float(at[0]), float(at[-1]), MAX_RAW_SPANS)
    idle = [span for span in spans if span.kind == "idle"]
    return tuple(  # type: ignore[return-value]
        so_far(np.array([s.t0 for s in some]), np.array([s.t1 for s in some]), at) for some in (idle, spans)
    )


def so_far(begins: np.ndarray, ends: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Seconds of the intervals [begins, ends) that lie before each moment of `at`, less those before the first one."""
    total = _before(begins, at) - _before(ends, at)
    return np.asarray(total - total[0])


def _before(starts: np.ndarray, at: np.ndarray) -> np.ndarray:
    """For each moment, how long ago all of `starts` before it were, added up; relative to keep microseconds."""
    if not len(starts):
        return np.zeros(len(at))
    ordered, moments = np.sort(starts) - at[0], at - at[0]
    sums = np.concatenate(([0.0], np.cumsum(ordered)))
    count = np.searchsorted(ordered, moments)
    return np.asarray(count * moments - sums[count])


def _of_rollups(reader: TelemetryReader, run_id: str, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same from the finest rollups that are few enough and reach back to the beginning."""
    coarsest = words.RESOLUTIONS_S[-1]
    for res in words.RESOLUTIONS_S:
        if (at[-1] - at[0]) / res > MAX_BINS and res != coarsest:
            continue
        window = reader.rollup(run_id, res, float(at[0]), float(at[-1]))
        if len(window.bins) and (window.starts[0] < at[0] + coarsest or res == coarsest):
            sums = window.ms.sum(axis=1) / 1000.0
            # known time stands at the edges of its bins, and grows evenly inside them
            grid = np.concatenate((window.starts, window.starts + res))
            order = np.argsort(grid, kind="stable")
            found = []
            for seconds in (sums[:, _IDLE].sum(axis=1), sums.sum(axis=1)):
                after = np.cumsum(seconds)
                values = np.concatenate((after - seconds, after))[order]
                found.append(np.interp(at, grid[order], values))
            return found[0], found[1]
    return np.zeros(len(at)), np.zeros(len(at))


def _shares(idle: np.ndarray, known: np.ndarray) -> list[float | None]:
    # a microsecond is what floats of this time of the century leave
    return [
        float(min(1.0, max(0.0, i / k))) if k > 1e-5 else None
        for i, k in zip(np.diff(idle), np.diff(known), strict=True)
    ]
