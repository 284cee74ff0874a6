"""Merges rollup additions into the stored bins. It lives in the writer thread and assumes that nobody else writes them.

Bins that were touched last stay in memory, because a 1 s bin is rewritten with every flush while it is the present; a
span that comes late finds its bins in the database.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections import OrderedDict
from collections.abc import Iterator, Mapping

import numpy as np

from storage import words
from storage.rollups import FINEST_S, Additions, decode, encode, merged

CACHED_CELLS = 5_000_000
"""20 MB: the last three minutes of 1024 devices, and every late span within the longest piece (60 s)."""

STORE_BIN = "INSERT OR REPLACE INTO rollups (run_id, res, bin, layout, data) VALUES (?, ?, ?, ?, ?)"


class RollupStore:
    """The bins of every run, through the writer's connection, inside the writer's transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._bins: OrderedDict[tuple[str, int, int], np.ndarray] = OrderedDict()
        self._cells = 0

    def add(self, additions: Mapping[str, Additions]) -> int:
        """Merge each run's additions and store; returns the bins rewritten. Raises RuntimeError when a device's spans
        overlap."""
        written = 0
        for run_id, part in additions.items():
            if len(part.bins) == 0:
                continue
            for res in words.RESOLUTIONS_S:
                rows = self._rows(run_id, res, part.bins * FINEST_S // res, part)
                written += self._connection.executemany(STORE_BIN, rows).rowcount
        while self._cells > CACHED_CELLS:
            _, evicted = self._bins.popitem(last=False)
            self._cells -= len(evicted)
        return written

    def forget(self, run_id: str) -> None:
        """The run has been deleted."""
        for key in [key for key in self._bins if key[0] == run_id]:
            self._cells -= len(self._bins.pop(key))

    def _rows(
        self, run_id: str, res: int, bins: np.ndarray, part: Additions
    ) -> Iterator[tuple[str, int, int, int, bytes]]:
        edges = [0, *(np.flatnonzero(bins[1:] != bins[:-1]) + 1).tolist(), len(bins)]
        for start, end in itertools.pairwise(edges):
            number = int(bins[start])
            before = self._load(run_id, res, number)
            total = merged(before, part.cells[start:end], part.ms[start:end])
            self._bins[run_id, res, number] = total
            self._cells += len(total) - (0 if before is None else len(before))
            yield run_id, res, number, words.COLUMNS_VERSION, encode(total)

    def _load(self, run_id: str, res: int, number: int) -> np.ndarray | None:
        key = run_id, res, number
        if (total := self._bins.get(key)) is not None:
            self._bins.move_to_end(key)
            return total
        row = self._connection.execute(
            "SELECT data, layout FROM rollups WHERE run_id = ? AND res = ? AND bin = ?", key
        ).fetchone()
        if row is None:
            return None
        total = decode([row[0]], [row[1]]).reshape(-1)
        self._cells += len(total)
        return total
