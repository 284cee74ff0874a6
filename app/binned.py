"""Reads a window of a run into bins, from whatever telemetry still knows it whole. How fine they are, `detail` says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from app import detail
from app.folded import FOLDED
from storage.reader import TelemetryReader
from storage.records import DeviceState, SpanTimes

COMPLETE_SHARE = 0.98
"""Sums of a window differ by a bin at either end; less than this of what is known means that something is gone."""


def binned(
    reader: TelemetryReader,
    run_id: str,
    rows: list[detail.Row],
    window: tuple[float, float],
    states: list[DeviceState],
    end: float,
    target_bins: int | None = None,
    coarsest_s: int | None = None,
) -> tuple[detail.Plan, np.ndarray]:
    """The plan for a window and its exact seconds [rows, bins, COLUMNS], open spans included up to `end`. coarsest_s:
    rollups that are fine enough, for a window that is read once and not kept.

    Raw spans, or the finest rollups, that still know what the window's sums know: retention deletes the finer first.
    """
    opened = detail.open_times(states, end)
    spans = reader.count_spans(run_id, *window, detail.MAX_RAW_SPANS + 1)
    many = {"rows": len(rows), "devices": max((d + 1 for row in rows for d in row.devices), default=0)}
    plan = detail.plan_window(*window, **many, spans=spans, target_bins=target_bins)
    if plan.source == "raw":
        closed = detail.bin_times(reader.span_times(run_id, plan.t0, plan.t1, detail.MAX_RAW_SPANS + 1), rows, plan)
        whole = reader.raw_gone(run_id, plan.t0, plan.t1) is None
        if whole or closed.sum() >= _known_s(reader, run_id, rows, plan) * COMPLETE_SHARE:
            return plan, _with(closed, opened, rows, plan)
    finest = max(reader.finest_rollup(run_id, plan.t0), coarsest_s or 0)
    plan = detail.plan_window(*window, **many, spans=spans, target_bins=target_bins, finest_s=finest)
    bins, ms = FOLDED.read(reader, run_id, plan.resolution_s or finest, rows, plan.t0, plan.t1)
    return plan, _with(detail.bin_folded(bins, ms, plan), opened, rows, plan)


def _known_s(reader: TelemetryReader, run_id: str, rows: list[detail.Row], plan: detail.Plan) -> float:
    """Device-seconds of the rows that rollups know in the window."""
    inside = {device for row in rows for device in row.devices}
    known = reader.kind_seconds(run_id, plan.t0, plan.t1, quick=True)
    return sum(sum(sums.values()) for device, sums in known.items() if device in inside)


def _with(closed: np.ndarray, opened: SpanTimes, rows: list[detail.Row], plan: detail.Plan) -> np.ndarray:
    """With the open spans, which few bins hold."""
    reached = (opened.t1 > plan.t0) & (opened.t0 < plan.t1)
    if reached.any():
        first = min(max(0, int((opened.t0[reached].min() - plan.t0) / plan.bin_s)), plan.bins - 1)
        part = replace(plan, first=plan.first + first, bins=plan.bins - first)
        closed[:, first:] += detail.bin_times(opened, rows, part)
    return closed
