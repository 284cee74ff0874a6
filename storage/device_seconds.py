"""How long each device did what inside a window: raw spans where they are, rollups where they are gone. Reads only."""

from __future__ import annotations

import itertools
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from storage import words
from storage.device_records import SpanTimes
from storage.rollups import NUM_COLUMNS, decode, padded

DeviceSeconds = dict[int, dict[str, float]]
"""Device -> rollup column -> seconds; columns without time are absent."""

Cell = tuple[int, str, float]
"""Device, rollup column, seconds."""

EDGE_S = 1e-6
"""A window that ends this near an edge of a bin ends there: a unix time in a float64 is no finer."""


def device_seconds(connection: sqlite3.Connection, run_id: str, t0: float, t1: float) -> DeviceSeconds:
    """Seconds of closed spans inside [t0, t1) (unix seconds); see `TelemetryReader.kind_seconds`."""
    out: DeviceSeconds = {}
    gone_from, gone_until, res = _gone(connection, run_id, t0, t1)
    for start, end in ((t0, min(gone_from, t1)), (max(gone_until, t0), t1)):
        _add(out, _from_spans(connection, run_id, start, end))
    _add(out, _from_rollups(connection, run_id, res, max(gone_from, t0), min(gone_until, t1)))
    return out


def device_seconds_quickly(connection: sqlite3.Connection, run_id: str, t0: float, t1: float) -> DeviceSeconds:
    """The same to a millisecond a column: whole bins from rollups, the coarsest that fit, and raw spans only for what
    is left of a second at either end. Its cost grows neither with the spans nor much with the window."""
    finest = finest_whole(connection, run_id, t0)
    whole = [res for res in words.RESOLUTIONS_S if res >= finest]
    stretches = _ladder(t0, t1, whole)
    out = _cells_of(_summed(connection, run_id, stretches[1:-1])) if len(stretches) > 2 else {}
    for _, start, end in (stretches[0], stretches[-1]) if len(stretches) > 1 else stretches:
        if end - start > EDGE_S:
            _add(out, _cells(device_seconds(connection, run_id, start, end)))
    return out


def finest_whole(connection: sqlite3.Connection, run_id: str, start: float) -> int:
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


def span_times(connection: sqlite3.Connection, run_id: str, t0: float, t1: float, limit: int) -> SpanTimes:
    """Raw spans that overlap [t0, t1), unclipped, at most `limit` of them."""
    rows = connection.execute(
        "SELECT device, t0, t1, kind, role, cause FROM spans"
        " WHERE run_id = ? AND t0 >= ? AND t0 < ? AND t1 > ? LIMIT ?",
        [run_id, t0 - words.MAX_SPAN_S, t1, t0, limit],
    ).fetchall()
    device, start, end, *words_of = zip(*rows, strict=True) if rows else [()] * 6
    columns = map(words.COLUMN_INDEX.__getitem__, zip(*words_of, strict=True))
    return SpanTimes(
        device=np.array(device, np.int64),
        t0=np.array(start, np.float64),
        t1=np.array(end, np.float64),
        column=np.fromiter(columns, np.int64, len(rows)),
    )


Stretch = tuple[int, float, float]
"""Resolution in seconds, start and end (unix seconds)."""


def _ladder(t0: float, t1: float, resolutions: Sequence[int]) -> list[Stretch]:
    """[t0, t1) cut at edges of bins: what is less than a bin (resolution 0) at either end, between them the coarsest
    bins that fit, finer ones towards the ends. One stretch of resolution 0 when no bin fits."""
    up, down = [t0], [t1]
    used: list[int] = []
    for res in resolutions:
        low, high = math.ceil((up[-1] - EDGE_S) / res) * res, math.floor((down[-1] + EDGE_S) / res) * res
        if high <= low:
            break
        up.append(float(low))
        down.append(float(high))
        used.append(res)
    if not used:
        return [(0, t0, t1)]
    before = [(res, a, b) for res, (a, b) in zip([0, *used], itertools.pairwise(up), strict=False)]
    after = [(res, b, a) for res, (a, b) in zip([0, *used], itertools.pairwise(down), strict=False)]
    return [*before, (used[-1], up[-1], down[-1]), *reversed(after)]


def _summed(connection: sqlite3.Connection, run_id: str, stretches: Sequence[Stretch]) -> np.ndarray:
    """int64 [devices, NUM_COLUMNS]: milliseconds of whole bins, added up."""
    total = np.zeros((0, NUM_COLUMNS), np.int64)
    for res, start, end in stretches:
        if end <= start:
            continue
        rows = _rollups(connection, run_id, res, round(start / res), round(end / res))
        if rows:
            _, layouts, blobs = zip(*rows, strict=True)
            total = _widest(total, _sum_of(blobs, layouts))
    return total


def _sum_of(blobs: Sequence[bytes], layouts: Sequence[int]) -> np.ndarray:
    """int64 [devices, NUM_COLUMNS]: the bins added up, and not widened first where they are alike."""
    if set(layouts) == {words.COLUMNS_VERSION}:
        flat = np.frombuffer(padded(blobs), "<u2").reshape(len(blobs), -1)
        return flat.sum(axis=0, dtype=np.int64).reshape(-1, NUM_COLUMNS)
    return decode(blobs, layouts).sum(axis=0, dtype=np.int64)


def _widest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum of two, each of which may lack devices that the other has."""
    short, long = sorted((a, b), key=len)
    long[: len(short)] += short
    return long


def _rollups(
    connection: sqlite3.Connection, run_id: str, res: int, first: int, until: int
) -> list[tuple[int, int, bytes]]:
    return connection.execute(
        "SELECT bin, layout, data FROM rollups WHERE run_id = ? AND res = ? AND bin >= ? AND bin < ?",
        [run_id, res, first, until],
    ).fetchall()


def _cells_of(ms: np.ndarray) -> DeviceSeconds:
    """Device -> column -> seconds, of milliseconds [devices, NUM_COLUMNS]."""
    out: DeviceSeconds = {}
    devices, columns = ms.nonzero()
    for device, column, value in zip(devices.tolist(), columns.tolist(), ms[devices, columns].tolist(), strict=True):
        out.setdefault(device, {})[words.COLUMNS[column]] = value / 1000.0
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
    res = finest_whole(connection, run_id, max(first, t0))
    return math.floor(first / res) * res, math.ceil(last / res) * res, res


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
    """A bin that the window cuts gives the share of it that lies inside."""
    if t1 <= t0:
        return
    rows = _rollups(connection, run_id, res, math.floor(t0 / res), math.ceil(t1 / res))
    if not rows:
        return
    bins, layouts, blobs = zip(*rows, strict=True)
    numbers = np.array(bins)
    shares = (np.minimum((numbers + 1) * res, t1) - np.maximum(numbers * res, t0)) / res
    seconds = np.tensordot(shares, decode(blobs, layouts), axes=1) / 1000.0
    for device, column in zip(*seconds.nonzero(), strict=True):
        yield int(device), words.COLUMNS[column], float(seconds[device, column])
