"""Checkpoints and failures of a window, told from device time itself and from what workers logged. Pure.

A checkpoint is time that devices spent on one; a failure is idle time with that cause, an error in the log, or the end
of a run that failed. Both are there for as long as sums are, whatever retention deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.clock import duration
from app.detail import Plan, Row
from app.modelled import REAL, Pace
from storage.records import LogRow, RunRow
from storage.words import COLUMNS

NEAR_S = 5.0
"""A line in the log this near a failure tells of it: the engine notices a death within seconds."""

ROWS_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened."""

    kind: str
    """checkpoint or failure."""
    at: float
    """Begin, unix seconds, as finely as a bin tells it."""
    text: str
    """What, where and for how long."""


def events_of(
    seconds: np.ndarray, rows: Sequence[Row], plan: Plan, logs: Sequence[LogRow], run: RunRow, pace: Pace = REAL
) -> list[Event]:
    """In their order. seconds: float64 [rows, bins, COLUMNS]; logs: warnings and errors of the window."""
    checkpoints = [
        Event(kind="checkpoint", at=at, text=_told("checkpoint", held, where, pace))
        for at, _, held, where in _stretches(seconds, rows, plan, "checkpoint")
    ]
    failures, told = [], set[int]()
    for at, until, held, where in _stretches(seconds, rows, plan, "idle_failure"):
        near = [(i, line) for i, line in enumerate(logs) if at - NEAR_S <= line.at <= until + NEAR_S]
        told |= {i for i, _ in near}
        said = " ".join(line.text for _, line in near[:2])
        failures.append(
            Event(kind="failure", at=at, text=f"{_told('idle after a failure', held, where, pace)}. {said}".strip())
        )
    failures += [
        Event(kind="failure", at=line.at, text=line.text)
        for i, line in enumerate(logs)
        if line.level == "error" and i not in told
    ]
    if run.state == "failed" and run.ended_at is not None and plan.t0 <= run.ended_at <= plan.t1:
        failures.append(
            Event(kind="failure", at=run.ended_at, text=f"The run failed: {run.error or 'no reason given'}")
        )
    return sorted([*checkpoints, *failures], key=lambda event: event.at)


def _stretches(
    seconds: np.ndarray, rows: Sequence[Row], plan: Plan, column: str
) -> list[tuple[float, float, float, list[str]]]:
    """Begin, end, device-seconds and rows of every stretch of bins in which any row spent time so."""
    held = seconds[:, :, COLUMNS.index(column)]
    inside = np.concatenate(([0], (held.sum(axis=0) > 0).astype(np.int8), [0]))
    edges = np.flatnonzero(np.diff(inside))
    return [
        (
            plan.t0 + first * plan.bin_s,
            plan.t0 + last * plan.bin_s,
            float(held[:, first:last].sum()),
            [rows[i].label for i in np.flatnonzero(held[:, first:last].sum(axis=1) > 0)],
        )
        for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    ]


def _told(what: str, held: float, where: Sequence[str], pace: Pace) -> str:
    more = f" and {len(where) - ROWS_NAMED} more" if len(where) > ROWS_NAMED else ""
    return f"{what}: {duration(pace.seconds(held))} of device time{pace.unit}, {', '.join(where[:ROWS_NAMED])}{more}"
