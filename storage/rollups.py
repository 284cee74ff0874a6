"""Rollups: milliseconds per bin, device and column, made from spans. Pure arithmetic on arrays; no database, no clock.

The sum of a device's column over the bins of a resolution stays within half a millisecond of the sum of its spans,
however many there are and in whatever order they come: time is cut into the finest bins and rounded cumulatively, and
what rounding held back is carried to the next span of that device and column. Coarser bins are sums of finer ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storage import words
from storage.device_records import Span

NUM_COLUMNS = len(words.COLUMNS)

FINEST_S = words.RESOLUTIONS_S[0]
"""Seconds; every coarser resolution is a multiple of it."""

CELL_LIMIT_MS = 65_535
"""A cell is a uint16. A device has at most 60,000 ms in a bin, so more means that its spans overlap."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Additions:
    """Whole milliseconds to add to the rollups of one run."""

    bins: np.ndarray
    """int64 [n]: numbers of the finest bins, ascending."""
    cells: np.ndarray
    """int64 [n]: device * NUM_COLUMNS + column."""
    ms: np.ndarray
    """int32 [n]: milliseconds, greater than 0; several may name the same bin and cell."""


class RollupBuilder:
    """Collects spans of any runs, in any order, as additions to be merged into stored rollups. Not thread-safe."""

    def __init__(self) -> None:
        self._remainders: dict[str, np.ndarray] = {}
        self._waiting: dict[str, list[Additions]] = {}

    def add(self, spans: Sequence[Span]) -> None:
        """Fold spans in."""
        by_run: dict[str, list[Span]] = {}
        for span in spans:
            by_run.setdefault(span.run_id, []).append(span)
        for run_id, members in by_run.items():
            t0 = np.array([span.t0 for span in members])
            t1 = np.array([span.t1 for span in members])
            cells = np.array(
                [span.device * NUM_COLUMNS + words.COLUMN_INDEX[span.kind, span.role, span.cause] for span in members]
            )
            self._waiting.setdefault(run_id, []).append(self._round(run_id, *cut(t0, t1, cells, FINEST_S)))

    def take(self) -> dict[str, Additions]:
        """What was added since the last take, by run."""
        waiting, self._waiting = self._waiting, {}
        return {run_id: parts[0] if len(parts) == 1 else _joined(parts) for run_id, parts in waiting.items()}

    def forget(self, run_id: str) -> None:
        """Drop a run's remainders and what waits for it."""
        self._remainders.pop(run_id, None)
        self._waiting.pop(run_id, None)

    def _round(self, run_id: str, bins: np.ndarray, cells: np.ndarray, ms: np.ndarray) -> Additions:
        remainder = self._remainders.get(run_id, np.zeros(0))
        if (short := int(cells.max()) + 1 - len(remainder)) > 0:
            remainder = np.concatenate([remainder, np.zeros(short)])
        self._remainders[run_id] = remainder
        whole = round_cumulatively(cells, ms, remainder)
        order = np.argsort(bins, kind="stable")
        order = order[whole[order] > 0]
        return Additions(bins=bins[order], cells=cells[order], ms=whole[order])


def cut(t0: np.ndarray, t1: np.ndarray, cells: np.ndarray, res: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut spans at the edges of bins.

    t0, t1: float64 [n] unix seconds; cells: int64 [n]; res: seconds. Returns bins int64 [m], cells int64 [m] and
    milliseconds float64 [m], in the order of the spans.
    """
    first = np.floor(t0 / res).astype(np.int64)
    last = np.maximum(np.ceil(t1 / res).astype(np.int64) - 1, first)
    counts = last - first + 1
    span_of = np.repeat(np.arange(len(t0)), counts)
    bins = np.arange(len(span_of)) - np.repeat(np.cumsum(counts) - counts, counts) + first[span_of]
    start = np.maximum(t0[span_of], bins * res)
    end = np.minimum(t1[span_of], (bins + 1) * res)
    return bins, cells[span_of], np.maximum(end - start, 0.0) * 1000.0


def round_cumulatively(cells: np.ndarray, ms: np.ndarray, remainder: np.ndarray) -> np.ndarray:
    """Round milliseconds so that each cell's running total is right to half a millisecond.

    cells: int64 [n]; ms: float64 [n], none negative; remainder: float64 [more than any cell], what earlier rounding
    held back (-0.5 to 0.5), updated in place. Returns int32 [n], none negative.
    """
    whole = np.zeros(len(cells), np.int32)
    if not len(cells):
        return whole
    order = np.argsort(cells, kind="stable")
    sorted_cells, sorted_ms = cells[order], ms[order]
    is_start = np.concatenate([[True], sorted_cells[1:] != sorted_cells[:-1]])
    starts = np.flatnonzero(is_start)
    ends = np.append(starts[1:], len(cells)) - 1
    running = np.cumsum(sorted_ms)
    before = np.repeat(running[starts] - sorted_ms[starts], ends - starts + 1)
    total = running - before + remainder[sorted_cells]
    rounded = np.floor(total + 0.5)
    previous = np.concatenate([[0.0], rounded[:-1]])
    previous[starts] = 0.0
    whole[order] = (rounded - previous).astype(np.int32)
    remainder[sorted_cells[ends]] = (total - rounded)[ends]
    return whole


def merged(total: np.ndarray | None, cells: np.ndarray, ms: np.ndarray) -> np.ndarray:
    """The cells of one bin with additions: int32 [devices * NUM_COLUMNS], grown to whole devices when needed.

    `total` is changed in place where it is large enough.
    """
    devices = int(cells.max()) // NUM_COLUMNS + 1
    if total is None:
        total = np.zeros(devices * NUM_COLUMNS, np.int32)
    elif len(total) < devices * NUM_COLUMNS:
        total = np.concatenate([total, np.zeros(devices * NUM_COLUMNS - len(total), np.int32)])
    np.add.at(total, cells, ms)
    return total


def encode(total: np.ndarray) -> bytes:
    """The blob of one bin: uint16 little-endian [devices, NUM_COLUMNS]. Raises RuntimeError if a cell is too large."""
    if total.max(initial=0) > CELL_LIMIT_MS:
        cell = int(total.argmax())
        raise RuntimeError(
            f"device {cell // NUM_COLUMNS} has {total[cell]} ms of {words.COLUMNS[cell % NUM_COLUMNS]} in one bin; "
            f"at most {CELL_LIMIT_MS} can be: its spans overlap"
        )
    return total.astype("<u2").tobytes()


def decode(blobs: Sequence[bytes], layouts: Sequence[int], dtype: type[np.integer[Any]] = np.int32) -> np.ndarray:
    """int32 [bins, devices, NUM_COLUMNS] of stored bins; devices that a bin does not have are zeros. dtype: np.uint16
    for who adds them up into something wider, and reads thousands.

    Raises KeyError for a layout that this program does not know.
    """
    if len(set(layouts)) == 1:
        flat = np.frombuffer(padded(blobs), "<u2").astype(dtype, copy=False)
        return _widened(flat.reshape(len(blobs), -1, words.COLUMNS_OF_VERSION[layouts[0]]))
    parts = [decode([blob], [layout], dtype)[0] for blob, layout in zip(blobs, layouts, strict=True)]
    out = np.zeros((len(parts), max((len(part) for part in parts), default=0), NUM_COLUMNS), dtype)
    for row, part in zip(out, parts, strict=True):
        row[: len(part)] = part
    return out


def padded(blobs: Sequence[bytes]) -> bytes:
    """All as long as the longest: a bin is stored without the devices at the end that have no time in it."""
    longest = max(map(len, blobs))
    return b"".join([blob if len(blob) == longest else blob.ljust(longest, b"\0") for blob in blobs])


def _widened(ms: np.ndarray) -> np.ndarray:
    missing = NUM_COLUMNS - ms.shape[-1]
    return np.pad(ms, ((0, 0), (0, 0), (0, missing))) if missing else ms


def _joined(parts: Sequence[Additions]) -> Additions:
    bins = np.concatenate([part.bins for part in parts])
    order = np.argsort(bins, kind="stable")
    return Additions(
        bins=bins[order],
        cells=np.concatenate([part.cells for part in parts])[order],
        ms=np.concatenate([part.ms for part in parts])[order],
    )
