"""Level of detail: how finely a window of a run is read and drawn. Pure functions; they never open a database.

The pictures show the majority of a bin and so hide short idle time; every number comes from the exact sums instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from storage.records import DeviceRow, DeviceState, Span, SpanTimes
from storage.words import COLUMNS, RESOLUTIONS_S, column_index

MAX_BINS = 1200
"""About the pixels of a wide chart: more bins than pixels cost and show nothing."""

MAX_CELLS = 60_000
"""Rows x bins that a browser redraws without stutter (measured: 0.08 s of its main thread)."""

MAX_RAW_SPANS = 12_000
"""Up to here raw spans are read and binned in 25 ms of CPU, half of what a window may cost, since each becomes a few
Python objects on its way out of the database; above, rollups answer faster."""

MAX_DEVICE_ROWS = 256
"""Two pixels a row on one screen; more rows than this cannot be told apart, so devices are grouped."""

MAX_GROUP_ROWS = 64
"""More groups than this are not readable by their names."""

MAX_READ_CELLS = 100_000
"""Rows x rollup bins that are read and added up within a refresh, however few of them are drawn: five minutes of 256
devices by the second."""

MAX_READ_DEVICES = 320_000
"""The same for devices x rollup bins, whatever rows they are added up to: five minutes of 1,024 devices by the second,
14 MB."""

NO_DATA = 0
"""Cell code of a bin without telemetry; column c of `COLUMNS` has code c + 1."""

REFRESH_S = ((32, 1.0), (256, 2.0), (math.inf, 5.0))
"""Up to so many devices: seconds between refreshes, which keeps the page's own cost level as runs grow."""

EPSILON = 1e-9


def refresh_interval_s(devices: int) -> float:
    """Seconds between two refreshes of a page that shows so many devices."""
    return next(seconds for limit, seconds in REFRESH_S if devices <= limit)


def snap(seconds: float) -> float:
    """The smallest number of the series ..., 0.1, 0.2, 0.5, 1, 2, 5, 10, ... that is not below `seconds`.

    Raises ValueError unless `seconds` is positive and finite.
    """
    if not 0 < seconds < math.inf:
        raise ValueError(f"a bin must be positive and finite, got {seconds!r}")
    decade = 10.0 ** math.floor(math.log10(seconds))
    factor = next(f for f in (1, 2, 5, 10) if f * decade >= seconds * (1 - EPSILON))
    return float(f"{factor * decade:.6g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one window is read and drawn. Bins are aligned to multiples of `bin_s`: same window, same picture."""

    source: Literal["raw", "rollup"]
    """Raw spans, or rollups of `resolution_s`."""
    resolution_s: int | None
    """Length of the rollup bins that are read, seconds; None for raw spans."""
    bin_s: float
    """Length of a drawn bin, seconds."""
    first: int
    """Number of the first drawn bin: it starts at `first * bin_s`, unix seconds."""
    bins: int
    """Drawn bins."""

    @property
    def t0(self) -> float:
        """Start of the drawn window, unix seconds."""
        return self.first * self.bin_s

    @property
    def t1(self) -> float:
        """End of the drawn window, unix seconds."""
        return (self.first + self.bins) * self.bin_s


def max_bins(rows: int) -> int:
    """Bins that may be drawn for so many rows."""
    return max(1, min(MAX_BINS, MAX_CELLS // max(rows, 1)))


def _aligned(t0: float, t1: float, bin_s: float) -> tuple[int, int]:
    first = math.floor(t0 / bin_s + EPSILON)
    last = math.ceil(t1 / bin_s - EPSILON)
    return first, max(1, last - first)


def plan_window(
    t0: float,
    t1: float,
    *,
    rows: int,
    spans: int,
    devices: int = 0,
    target_bins: int | None = None,
    finest_s: int | None = None,
) -> Plan:
    """The plan for drawing [t0, t1) with `rows` rows when `spans` raw spans lie in it (counted just past
    `MAX_RAW_SPANS`).

    devices: of the run, where rows stand for several. target_bins: fewer bins than the most. finest_s: the finest
    rollups that are left, or None when the raw spans are.
    Raises ValueError unless t1 > t0.
    """
    if not t1 > t0:
        raise ValueError(f"a window must end after its start {t0!r}, got {t1!r}")
    # one bin less, because alignment may add a partial bin at either end
    most = max(1, min(max_bins(rows), target_bins or MAX_BINS) - 1)
    wanted = (t1 - t0) / most
    if spans <= MAX_RAW_SPANS and finest_s is None:
        bin_s = snap(wanted)
        first, bins = _aligned(t0, t1, bin_s)
        return Plan(source="raw", resolution_s=None, bin_s=bin_s, first=first, bins=bins)
    left = [res for res in RESOLUTIONS_S if finest_s is None or res >= finest_s] or [RESOLUTIONS_S[-1]]
    most_read = min(MAX_READ_CELLS / max(rows, 1), MAX_READ_DEVICES / max(devices, 1))
    resolution = next((res for res in left if (t1 - t0) / res <= most_read), left[-1])
    # a drawn bin holds a whole number of rollup bins, or the sums would have to be split
    bin_s = resolution * snap(max(1.0, wanted / resolution))
    first, bins = _aligned(t0, t1, bin_s)
    return Plan(source="rollup", resolution_s=resolution, bin_s=bin_s, first=first, bins=bins)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a chart: a device, or the devices of a node or pool."""

    label: str
    """Shown on the axis."""
    devices: tuple[int, ...]
    """Indices inside the run."""
    key: str
    """Stable name, sent back when the row is opened."""
    tick: str = ""
    """Shorter label, for an axis that names the pools beside it; empty to show `label`."""
    pool: str = ""
    """Home pool of its device; empty without pools, and for groups."""


def device_label(row: DeviceRow, *, emulated: bool = False) -> str:
    """ "device 3 · rollout"; without pools only the device."""
    return f"{'EMULATED ' if emulated else ''}device {row.device}" + (f" · {row.pool}" if row.pool else "")


def chart_rows(devices: Sequence[DeviceRow], *, opened: str | None = None, emulated: bool = False) -> list[Row]:
    """A row a device up to 256, pool by pool; above, a row a node; above 64 nodes, a row a pool. `opened` is the key of
    a group whose devices are shown instead (grouped again when they are still too many)."""
    pools = {"rollout": 0, "train": 1}
    ordered = sorted(devices, key=lambda d: (pools.get(d.pool or "", 2), d.device))
    if len(ordered) <= MAX_DEVICE_ROWS:
        return [
            Row(
                label=device_label(d, emulated=emulated),
                devices=(d.device,),
                key=f"device:{d.device}",
                tick=f"device {d.device}",
                pool=d.pool or "",
            )
            for d in ordered
        ]
    by_node = _grouped(ordered, "node", lambda d: d.node)
    rows = by_node if len(by_node) <= MAX_GROUP_ROWS else _grouped(ordered, "pool", lambda d: d.pool or "no pool")
    chosen = next((row for row in rows if row.key == opened), None)
    if chosen is None:
        return rows
    inside = [d for d in ordered if d.device in set(chosen.devices)]
    if len(inside) <= MAX_DEVICE_ROWS:
        return chart_rows(inside, emulated=emulated)
    return _grouped(inside, "node", lambda d: d.node)[:MAX_GROUP_ROWS]


def _grouped(devices: Sequence[DeviceRow], what: str, name_of: Callable[[DeviceRow], str]) -> list[Row]:
    members: dict[str, list[int]] = {}
    for device in devices:
        members.setdefault(name_of(device), []).append(device.device)
    return [
        Row(label=f"{name} ({len(indices)})", devices=tuple(indices), key=f"{what}:{name}")
        for name, indices in members.items()
    ]


def open_spans(run_id: str, states: Iterable[DeviceState], until: float) -> list[Span]:
    """The open span of each device as a span that ends where its worker last said so, at most at `until`.

    What a silent worker does after that is unknown, and unknown is drawn as no data.
    """
    return [
        Span(
            run_id=run_id,
            device=s.device,
            t0=s.since,
            t1=min(s.seen_at, until),
            kind=s.kind,
            role=s.role,
            cause=s.cause,
            version=s.version,
            step=s.step,
        )
        for s in states
        if min(s.seen_at, until) > s.since
    ]


def open_times(states: Iterable[DeviceState], until: float) -> SpanTimes:
    """The same as arrays."""
    known = [s for s in states if min(s.seen_at, until) > s.since]
    return SpanTimes(
        device=np.array([s.device for s in known], np.int64),
        t0=np.array([s.since for s in known], np.float64),
        t1=np.array([min(s.seen_at, until) for s in known], np.float64),
        column=np.array([column_index(s.kind, s.role, s.cause) for s in known], np.int64),
    )


def bin_spans(spans: Sequence[Span], rows: Sequence[Row], plan: Plan) -> np.ndarray:
    """float64 [rows, bins, COLUMNS]: exact seconds of each column in each bin; spans outside the window add nothing."""
    times = SpanTimes(
        device=np.array([s.device for s in spans], np.int64),
        t0=np.array([s.t0 for s in spans]),
        t1=np.array([s.t1 for s in spans]),
        column=np.array([column_index(s.kind, s.role, s.cause) for s in spans], np.int64),
    )
    return bin_times(times, rows, plan)


def bin_times(spans: SpanTimes, rows: Sequence[Row], plan: Plan) -> np.ndarray:
    """The same of spans as arrays, which is how a window of thousands is read."""
    columns = len(COLUMNS)
    shape = (len(rows), plan.bins, columns)
    row_of = np.full(max([int(spans.device.max(initial=-1)), *(d for row in rows for d in row.devices)]) + 2, -1)
    for index, row in enumerate(rows):
        row_of[list(row.devices)] = index
    row = row_of[spans.device]
    kept = (row >= 0) & (spans.t1 > plan.t0) & (spans.t0 < plan.t1)
    if not kept.any():
        return np.zeros(shape)
    # relative to the window, so that a float64 keeps its microseconds
    start = (spans.t0[kept] - plan.t0).clip(min=0.0) / plan.bin_s
    end = ((spans.t1[kept] - plan.t0) / plan.bin_s).clip(max=plan.bins)
    base = row[kept] * plan.bins * columns + spans.column[kept]
    first = np.minimum(np.floor(start).astype(np.int64), plan.bins - 1)
    last = np.clip(np.ceil(end).astype(np.int64), first + 1, plan.bins) - 1
    # its first and last bin hold a part of a span
    at = np.concatenate([base + first * columns, base + last * columns])
    parts = np.concatenate([np.minimum(end, first + 1) - start, np.where(last > first, end - last, 0.0)])
    between = np.maximum(last - first - 1, 0)
    if between.sum() < math.prod(shape):
        # those between are full of it
        begin = np.repeat(base + (first + 1) * columns, between)
        offset = np.arange(between.sum()) - np.repeat(np.cumsum(between) - between, between)
        at = np.concatenate([at, begin + offset * columns])
        parts = np.concatenate([parts, np.ones(len(offset))])
    cells: np.ndarray = np.bincount(
        at, weights=np.maximum(parts, 0.0) * plan.bin_s, minlength=math.prod(shape)
    ).reshape(shape)
    if between.sum() >= math.prod(shape):
        # so many that it is cheaper to count where they begin and end; whole numbers keep an empty bin exactly empty
        full = np.zeros(math.prod(shape), np.int32)
        np.add.at(full, (base + (first + 1) * columns)[between > 0], 1)
        np.subtract.at(full, (base + last * columns)[between > 0], 1)
        cells += full.reshape(shape).cumsum(axis=1, dtype=np.int32) * plan.bin_s
    return cells


def bin_rollups(bins: np.ndarray, ms: np.ndarray, rows: Sequence[Row], plan: Plan) -> np.ndarray:
    """float64 [rows, bins, COLUMNS]: exact seconds. bins: int64 [n], ascending; ms: whole, [n, devices, COLUMNS].

    Raises ValueError when a drawn bin does not hold whole rollup bins.
    """
    return bin_folded(bins, fold(ms, [row.devices for row in rows]), plan)


def bin_folded(bins: np.ndarray, ms: np.ndarray, plan: Plan) -> np.ndarray:
    """The same of milliseconds that are added up by row: int32 [n, rows, COLUMNS]."""
    if plan.resolution_s is None or (plan.bin_s / plan.resolution_s) % 1:
        raise ValueError(f"bins of {plan.bin_s} s do not hold whole rollup bins of {plan.resolution_s} s")
    per_bin = round(plan.bin_s / plan.resolution_s)
    at = bins - plan.first * per_bin
    inside = (at >= 0) & (at < plan.bins * per_bin)
    every = np.zeros((plan.bins * per_bin, *ms.shape[1:]), ms.dtype)
    every[at[inside]] = ms if inside.all() else ms[inside]
    drawn = every if per_bin == 1 else every.reshape(plan.bins, per_bin, *ms.shape[1:]).sum(axis=1, dtype=np.int64)
    return np.ascontiguousarray(drawn.transpose(1, 0, 2)) / 1000.0


def fold(ms: np.ndarray, groups: Sequence[Sequence[int]]) -> np.ndarray:
    """int32 [n, groups, COLUMNS]: milliseconds [n, devices, COLUMNS] added up by group of devices.

    A device that the bins do not have adds nothing. An int32 holds a minute of 35,000 devices.
    """
    known = [[device for device in group if device < ms.shape[1]] for group in groups]
    shown = [index for index, devices in enumerate(known) if devices]
    result = np.zeros((len(ms), len(groups), len(COLUMNS)), np.int32)
    if not shown or not len(ms):
        return result
    if all(len(known[index]) == 1 for index in shown):
        order = [known[index][0] for index in shown]
        result[:, shown] = ms if order == list(range(ms.shape[1])) else ms[:, order]
        return result
    for index in shown:
        devices = known[index]
        together = devices[-1] - devices[0] + 1 == len(devices)
        picked = ms[:, devices[0] : devices[-1] + 1] if together else ms[:, devices]
        np.sum(picked, axis=1, dtype=np.int32, out=result[:, index])
    return result


def majority(seconds: np.ndarray) -> np.ndarray:
    """uint8 [rows, bins]: code of the column that holds most of each bin, `NO_DATA` where nothing is known.

    Ties go to the earlier column, which is the busier one.
    """
    codes = (seconds.argmax(axis=2) + 1).astype(np.uint8)
    codes[seconds.sum(axis=2) <= 0] = NO_DATA
    return codes


def idle_share(seconds: np.ndarray, idle_columns: slice) -> np.ndarray:
    """float64 [rows, bins]: exact idle share of the known time of each bin, NaN where nothing is known."""
    known = seconds.sum(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(known > 0, seconds[:, :, idle_columns].sum(axis=2) / known, np.nan)


def gaps(codes: np.ndarray) -> list[tuple[int, int, int]]:
    """(row, first bin, bins) of every stretch without data."""
    found = []
    for row, line in enumerate(codes == NO_DATA):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], line.view(np.int8), [0]))))
        found += [(row, int(a), int(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return found
