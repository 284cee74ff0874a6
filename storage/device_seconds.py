"""How long each device did what inside a window: raw spans where they are, rollups where they are gone. Reads only."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator

from storage import words
from storage.rollups import decode

DeviceSeconds = dict[int, dict[str, float]]
"""Device -> rollup column -> seconds; columns without time are absent."""

Cell = tuple[int, str, float]
"""Device, rollup column, seconds."""


def device_seconds(connection: sqlite3.Connection, run_id: str, t0: float, t1: float) -> DeviceSeconds:
    """Seconds of closed spans inside [t0, t1) (unix seconds); see `TelemetryReader.kind_seconds`."""
    out: DeviceSeconds = {}
    gone_from, gone_until, res = _gone(connection, run_id, t0, t1)
    for start, end in ((t0, min(gone_from, t1)), (max(gone_until, t0), t1)):
        _add(out, _from_spans(connection, run_id, start, end))
    _add(out, _from_rollups(connection, run_id, res, max(gone_from, t0), min(gone_until, t1)))
    return out


def device_seconds_quickly(connection: sqlite3.Connection, run_id: str, t0: float, t1: float) -> DeviceSeconds:
    """The same to a millisecond a column: whole coarse bins from rollups, only the two ends from raw spans."""
    coarsest = words.RESOLUTIONS_S[-1]
    inner_from, inner_until = math.ceil(t0 / coarsest) * coarsest, math.floor(t1 / coarsest) * coarsest
    if inner_until <= inner_from:
        return device_seconds(connection, run_id, t0, t1)
    out = device_seconds(connection, run_id, t0, inner_from)
    _add(out, _from_rollups(connection, run_id, coarsest, inner_from, inner_until))
    _add(out, _cells(device_seconds(connection, run_id, inner_until, t1)))
    return out


def _cells(seconds: DeviceSeconds) -> Iterator[Cell]:
    return ((device, column, s) for device, columns in seconds.items() for column, s in columns.items())


def _add(out: DeviceSeconds, cells: Iterable[Cell]) -> None:
    for device, column, seconds in cells:
        of_device = out.setdefault(device, {})
        of_device[column] = of_device.get(column, 0.0) + seconds


def _gone(connection: sqlite3.Connection, run_id: str, t0: float, t1: float) -> tuple[float, float, int]:
    """From and until when raw spans are incomplete in the window, at the edges of bins, and the resolution to use
    there; (t1, t1, 1) when none is missing."""
    first, last = connection.execute(
        "SELECT min(t0), max(t1) FROM raw_missing WHERE run_id = ? AND t0 < ? AND t1 > ?", [run_id, t1, t0]
    ).fetchone()
    if first is None:
        return t1, t1, 1
    res = _finest(connection, run_id, max(first, t0))
    return math.floor(first / res) * res, math.ceil(last / res) * res, res


def _finest(connection: sqlite3.Connection, run_id: str, start: float) -> int:
    """The finest resolution whose bins are whole from `start` on; retention deletes the finer ones first."""
    first_bin = "SELECT min(bin) FROM rollups WHERE run_id = ? AND res = ?"
    starts = {
        res: found * res
        for res in words.RESOLUTIONS_S
        if (found := connection.execute(first_bin, [run_id, res]).fetchone()[0]) is not None
    }
    coarsest = words.RESOLUTIONS_S[-1]
    run_start = starts.get(coarsest, -math.inf)
    for res in words.RESOLUTIONS_S:
        # Nothing was deleted if the first bin lies inside the first coarse one, which is kept for ever.
        if res in starts and (starts[res] < run_start + coarsest or starts[res] <= start):
            return res
    return coarsest


def _from_spans(connection: sqlite3.Connection, run_id: str, t0: float, t1: float) -> Iterator[Cell]:
    if t1 <= t0:
        return
    rows = connection.execute(
        "SELECT device, kind, role, cause, sum(min(t1, ?3) - max(t0, ?2)) FROM spans"
        " WHERE run_id = ?1 AND t0 >= ?2 - ?4 AND t0 < ?3 AND t1 > ?2 GROUP BY device, kind, role, cause",
        [run_id, t0, t1, words.MAX_SPAN_S],
    )
    for device, kind, role, cause, seconds in rows:
        yield device, words.COLUMNS[words.column_index(kind, role, cause)], seconds


def _from_rollups(connection: sqlite3.Connection, run_id: str, res: int, t0: float, t1: float) -> Iterator[Cell]:
    if t1 <= t0:
        return
    rows = connection.execute(
        "SELECT bin, layout, data FROM rollups WHERE run_id = ? AND res = ? AND bin >= ? AND bin < ?",
        [run_id, res, math.floor(t0 / res), math.ceil(t1 / res)],
    ).fetchall()
    if not rows:
        return
    bins, layouts, blobs = zip(*rows, strict=True)
    ms = decode(blobs, layouts).astype(float)
    for row, number in zip(ms, bins, strict=True):
        row *= (min((number + 1) * res, t1) - max(number * res, t0)) / res
    seconds = ms.sum(axis=0) / 1000.0
    for device, column in zip(*seconds.nonzero(), strict=True):
        yield int(device), words.COLUMNS[column], float(seconds[device, column])
