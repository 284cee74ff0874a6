"""Reads a window of a run into bins, from whatever telemetry still knows it whole. How fine they are, `detail` says."""

from __future__ import annotations

import numpy as np

from app import detail
from storage.reader import TelemetryReader
from storage.records import DeviceState
from storage.words import RESOLUTIONS_S

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
) -> tuple[detail.Plan, np.ndarray]:
    """The plan for a window and its exact seconds [rows, bins, COLUMNS], open spans included up to `end`.

    Raw spans, or the finest rollups, that still know what the window's sums know: retention deletes the finer first.
    """
    opened = detail.open_spans(run_id, states, end)
    spans = reader.count_spans(run_id, *window, detail.MAX_RAW_SPANS + 1)
    plan = detail.plan_window(*window, rows=len(rows), spans=spans, target_bins=target_bins)
    inside = {device for row in rows for device in row.devices}
    known = reader.kind_seconds(run_id, plan.t0, plan.t1, quick=True)
    known_s = sum(sum(sums.values()) for device, sums in known.items() if device in inside)
    if plan.source == "raw":
        closed = detail.bin_spans(reader.spans(run_id, plan.t0, plan.t1, detail.MAX_RAW_SPANS + 1), rows, plan)
        if closed.sum() >= known_s * COMPLETE_SHARE:
            return plan, closed + detail.bin_spans(opened, rows, plan)
    for resolution in RESOLUTIONS_S:
        if resolution < (plan.resolution_s or 1):
            continue
        plan = detail.plan_window(*window, rows=len(rows), spans=spans, target_bins=target_bins, finest_s=resolution)
        rolled = reader.rollup(run_id, resolution, plan.t0, plan.t1)
        closed = detail.bin_rollups(rolled.bins, rolled.ms, rows, plan)
        if closed.sum() >= known_s * COMPLETE_SHARE:
            break
    return plan, closed + detail.bin_spans(opened, rows, plan)
