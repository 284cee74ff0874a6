"""What telemetry is deleted and when. Steps, groups, decisions, leases, logs and 60 s rollups stay until
their run is deleted; the policy's states go where raw spans go, for a replay needs both.

Deleting goes in chunks, each a transaction of its own, so that the writer can commit new rows between two of them.
Where raw spans go, `raw_missing` says so in the same transaction: from there on only rollups are exact.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from storage import words
from storage.database import immediate

CHUNK_ROWS = 20_000
"""20 to 60 ms of work, a fraction of a flush interval."""

SWEEP_EVERY_S = 60.0
"""A sweep that finds nothing costs one index look-up a run; once a minute nobody notices either way."""

FREE_SHARE = 4
"""Pages are given back to the file system only when more than 1 in this many is free: new spans reuse the others."""

VACUUM_PAGES = 1000
"""Pages given back at a time: 4 MB, the size of the log's own checkpoints."""

LAST_BIN = 2**62
"""Later than any bin."""

CHUNK_STATES = 1000
"""A state is a blob of a few kilobytes, so a chunk of them weighs about as much as one of spans."""

TABLES_OF_A_RUN = (
    "spans",
    "rollups",
    "raw_missing",
    "device_state",
    "devices",
    "steps",
    "groups",
    "evals",
    "logs",
    "decisions",
    "leases",
    "states",
)
"""Everything with a run_id but the run itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long telemetry is kept."""

    raw_age_s: float = 6 * 3600.0
    """Raw spans, seconds since they started: the length of a shift."""
    raw_rows: int = 5_000_000
    """Raw spans, rows in all: about 1 GB."""
    rollup_1_age_s: float = 24 * 3600.0
    """1 s rollups, seconds."""
    rollup_10_age_s: float = 30 * 24 * 3600.0
    """10 s rollups, seconds."""


class Retention:
    """Sweeps one database through its writer's connection. Counts the raw spans once, then keeps count."""

    def __init__(self, connection: sqlite3.Connection, limits: Limits) -> None:
        self._connection = connection
        self._limits = limits
        self.raw_rows = int(connection.execute("SELECT count(*) FROM spans").fetchone()[0])

    def sweep(self, now: float) -> Iterator[int]:
        """Delete what is too old at `now` (unix seconds), yielding the rows deleted after each chunk."""
        for run_id in self._runs("spans"):
            raw_before = self._before(run_id, now, self._limits.raw_age_s)
            while deleted := self._delete_spans(run_id, raw_before):
                yield deleted
        while self.raw_rows > self._limits.raw_rows:
            deleted = self._delete_spans(self._oldest_run(), now, limit=self.raw_rows - self._limits.raw_rows)
            if not deleted:
                break
            yield deleted
        for run_id in self._runs("states"):
            raw_before = self._before(run_id, now, self._limits.raw_age_s)
            before = max(raw_before, self._raw_spans_gone_before(run_id))
            while deleted := self._delete_states(run_id, before):
                yield deleted
        for res, age_s in ((1, self._limits.rollup_1_age_s), (10, self._limits.rollup_10_age_s)):
            for run_id in self._runs("rollups"):
                if (from_on := self._before(run_id, now, age_s)) == -math.inf:
                    continue
                # Cut at the edge of a 60 s bin, so that the first finer bin shows from where on finer ones are whole.
                before = int(from_on // words.RESOLUTIONS_S[-1] * words.RESOLUTIONS_S[-1] // res)
                while deleted := self._delete_rollups(run_id, res, before):
                    yield deleted
        while self._give_back_pages():
            yield 0

    def delete_run(self, run_id: str) -> None:
        """Delete everything of a run, its row in `runs` last: after a crash in between it can be deleted again."""
        while self._delete_spans(run_id, math.inf):
            pass
        while self._delete_states(run_id, math.inf):
            pass
        for res in words.RESOLUTIONS_S:
            while self._delete_rollups(run_id, res, LAST_BIN):
                pass
        with immediate(self._connection):
            for table in TABLES_OF_A_RUN:
                self._connection.execute(f"DELETE FROM {table} WHERE run_id = ?", [run_id])
            self._connection.execute("DELETE FROM runs WHERE run_id = ?", [run_id])

    def _before(self, run_id: str, now: float, age_s: float) -> float:
        """Until when a run's telemetry is too old, unix seconds. One that was imported is as old as its import is, or
        all of it would go within a minute."""
        row = self._connection.execute("SELECT imported_at FROM runs WHERE run_id = ?", [run_id]).fetchone()
        imported_at = row[0] if row else None
        return -math.inf if imported_at is not None and now - imported_at < age_s else now - age_s

    def _runs(self, table: str) -> list[str]:
        """Runs with rows in a table whose key starts with run_id: one index look-up a run, never a scan."""
        runs: list[str] = []
        sql = f"SELECT run_id FROM {table} WHERE run_id > ? ORDER BY run_id LIMIT 1"
        while row := self._connection.execute(sql, [runs[-1] if runs else ""]).fetchone():
            runs.append(row[0])
        return runs

    def _oldest_run(self) -> str:
        starts = {
            run_id: self._connection.execute("SELECT min(t0) FROM spans WHERE run_id = ?", [run_id]).fetchone()[0]
            for run_id in self._runs("spans")
        }
        return min(starts, key=starts.__getitem__)

    def _delete_spans(self, run_id: str, before: float, limit: int = CHUNK_ROWS) -> int:
        """Delete the run's oldest spans that start before `before`, at most about `limit` and `CHUNK_ROWS`."""
        chunk = min(limit, CHUNK_ROWS)
        sql = "SELECT t0 FROM spans WHERE run_id = ? AND t0 < ? ORDER BY t0 LIMIT 1 OFFSET ?"
        first = self._connection.execute(sql, [run_id, before, 0]).fetchone()
        if first is None:
            return 0
        # All spans of one start go together, so a chunk that ends inside them is extended to their end.
        last = self._connection.execute(sql, [run_id, before, chunk - 1]).fetchone()
        condition, bound = ("t0 <= ?", last[0]) if last else ("t0 < ?", before)
        with immediate(self._connection):
            deleted = self._connection.execute(
                f"DELETE FROM spans WHERE run_id = ? AND {condition}", [run_id, bound]
            ).rowcount
            record_missing(self._connection, run_id, "retention", first[0], bound + words.MAX_SPAN_S, deleted)
        self.raw_rows -= deleted
        return deleted

    def _raw_spans_gone_before(self, run_id: str) -> float:
        """Until when retention has deleted the run's raw spans, by age or by number; -inf when it has not."""
        sql = "SELECT t1 FROM raw_missing WHERE run_id = ? AND reason = 'retention'"
        found = self._connection.execute(sql, [run_id]).fetchone()
        return float(found[0]) - words.MAX_SPAN_S if found else -math.inf

    def _delete_states(self, run_id: str, before: float) -> int:
        with immediate(self._connection):
            return self._connection.execute(
                "DELETE FROM states WHERE run_id = ?1 AND seq IN"
                " (SELECT seq FROM states WHERE run_id = ?1 AND at < ?2 ORDER BY at LIMIT ?3)",
                [run_id, before, CHUNK_STATES],
            ).rowcount

    def _delete_rollups(self, run_id: str, res: int, before: int) -> int:
        sql = "SELECT bin FROM rollups WHERE run_id = ? AND res = ? AND bin < ? ORDER BY bin LIMIT 1 OFFSET ?"
        last = self._connection.execute(sql, [run_id, res, before, CHUNK_ROWS - 1]).fetchone()
        with immediate(self._connection):
            return self._connection.execute(
                "DELETE FROM rollups WHERE run_id = ? AND res = ? AND bin < ?",
                [run_id, res, last[0] + 1 if last else before],
            ).rowcount

    def _give_back_pages(self) -> bool:
        free = self._connection.execute("PRAGMA freelist_count").fetchone()[0]
        total = self._connection.execute("PRAGMA page_count").fetchone()[0]
        if free <= VACUUM_PAGES or free * FREE_SHARE <= total:
            return False
        self._connection.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
        return bool(self._connection.execute("PRAGMA freelist_count").fetchone()[0] < free)


def record_missing(connection: sqlite3.Connection, run_id: str, reason: str, t0: float, t1: float, spans: int) -> None:
    """Note that raw spans of a run are missing between t0 and t1 (unix seconds), inside the caller's transaction."""
    connection.execute(
        "INSERT INTO raw_missing (run_id, reason, t0, t1, spans) VALUES (?, ?, ?, ?, ?) ON CONFLICT (run_id, reason)"
        " DO UPDATE SET t0 = min(t0, excluded.t0), t1 = max(t1, excluded.t1), spans = spans + excluded.spans",
        [run_id, reason, t0, t1, spans],
    )
