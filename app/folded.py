"""Rollup bins added up by row, and kept: a refresh adds up only those bins whose stored bytes are new.

Nothing is assumed about which bins are closed: every bin is read, and one whose bytes are others is added up again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.detail import Row, fold
from storage.reader import TelemetryReader
from storage.rollups import decode

KEPT_WINDOWS = 12
"""Windows of runs that are looked at just now; those looked at longest ago are forgotten."""

KEPT_BYTES = 120_000_000
"""The last five minutes of 1,024 devices by the second take 16 MB, of 256 devices in a row each 17 MB."""

Key = tuple[str, str, int, int]
"""Database, run, resolution in seconds, and the rows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Window:
    place: dict[int, int]
    """Bin -> its index here."""
    blobs: tuple[bytes, ...]
    """As stored."""
    ms: np.ndarray
    """int32 [n, rows, COLUMNS]."""

    @property
    def size(self) -> int:
        return self.ms.nbytes + sum(map(len, self.blobs))


class FoldedWindows:
    """Windows that were folded last, shared by all who look; safe for threads."""

    def __init__(self) -> None:
        self._windows: OrderedDict[Key, _Window] = OrderedDict()
        self._lock = threading.Lock()

    def read(
        self, reader: TelemetryReader, run_id: str, res: int, rows: Sequence[Row], t0: float, t1: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bins int64 [n], ascending, that overlap [t0, t1), and milliseconds int32 [n, rows, COLUMNS].

        Raises what the reader raises.
        """
        stored = reader.rollup_blobs(run_id, res, t0, t1)
        groups = tuple(row.devices for row in rows)
        key = str(reader.path), run_id, res, hash(groups)
        with self._lock:
            kept = self._windows.get(key)
        numbers = [number for number, _, _ in stored]
        blobs = tuple(blob for _, _, blob in stored)
        old = [kept.place.get(number, -1) if kept is not None else -1 for number in numbers]
        known = [i for i, at in enumerate(old) if at >= 0 and kept is not None and kept.blobs[at] == blobs[i]]
        fresh = sorted(set(range(len(stored))).difference(known))
        ms = fold(decode([blobs[i] for i in fresh], [stored[i][1] for i in fresh], np.uint16), groups)
        if known and kept is not None:
            whole = np.empty((len(stored), *ms.shape[1:]), np.int32)
            whole[known] = kept.ms[[old[i] for i in known]]
            whole[fresh] = ms
            ms = whole
        self._keep(key, _Window(place={n: i for i, n in enumerate(numbers)}, blobs=blobs, ms=ms))
        return np.array(numbers, np.int64), ms

    def _keep(self, key: Key, window: _Window) -> None:
        with self._lock:
            self._windows[key] = window
            self._windows.move_to_end(key)
            while len(self._windows) > 1 and (
                len(self._windows) > KEPT_WINDOWS or sum(w.size for w in self._windows.values()) > KEPT_BYTES
            ):
                self._windows.popitem(last=False)


FOLDED = FoldedWindows()
"""Of this process."""
