"""What happened around a moment of a run: the narrow queries behind a timeline that is clicked on. Reads only.

`TelemetryReader` inherits them. None scans a run's spans beyond its window: a database has a million of them and more.
"""

from __future__ import annotations

from typing import Any, TypeVar

from storage import words
from storage.records import GroupRow, LeaseRow, LogRow, Span

Record = TypeVar("Record")


class MomentReads:
    """Queries by time, on the connection of whoever inherits this."""

    def leases_at(self, run_id: str, at: float, limit: int = 200) -> list[LeaseRow]:
        """Leases that were granted and not home again at `at`, oldest first; the last `limit` granted."""
        return self._records(
            LeaseRow,
            "FROM leases WHERE run_id = ?1 AND granted_at <= ?2 AND (released_at IS NULL OR released_at > ?2)"
            " ORDER BY granted_at DESC, lease DESC LIMIT ?3",
            run_id,
            at,
            limit,
        )[::-1]

    def spans_near(self, run_id: str, device: int, at: float, count: int = 1000) -> list[Span]:
        """The raw spans of one device next to a moment, oldest first: `count` that start at or before it, and `count`
        after it."""
        of_device = "FROM spans WHERE run_id = ? AND device = ? AND t0"
        before = self._records(Span, f"{of_device} <= ? ORDER BY t0 DESC LIMIT ?", run_id, device, at, count)
        return before[::-1] + self._records(Span, f"{of_device} > ? ORDER BY t0 LIMIT ?", run_id, device, at, count)

    def longest_idle(self, run_id: str, t0: float, t1: float, limit: int) -> list[Span]:
        """The longest raw idle spans (pieces of at most 60 s) that overlap [t0, t1), longest first, unclipped."""
        return self._records(
            Span,
            "FROM spans WHERE run_id = ? AND t0 >= ? AND t0 < ? AND t1 > ? AND kind = 'idle'"
            " ORDER BY t1 - t0 DESC, t0, device LIMIT ?",
            run_id,
            t0 - words.MAX_SPAN_S,
            t1,
            t0,
            limit,
        )

    def span_before(self, run_id: str, device: int, at: float) -> Span | None:
        """The last raw span of a device that starts before `at`."""
        tail = "FROM spans WHERE run_id = ? AND device = ? AND t0 < ? ORDER BY t0 DESC LIMIT 1"
        return next(iter(self._records(Span, tail, run_id, device, at)), None)

    def span_from(self, run_id: str, device: int, at: float) -> Span | None:
        """The first raw span of a device that starts at `at` or later."""
        tail = "FROM spans WHERE run_id = ? AND device = ? AND t0 >= ? ORDER BY t0 LIMIT 1"
        return next(iter(self._records(Span, tail, run_id, device, at)), None)

    def groups_on(self, run_id: str, device: int, t0: float, t1: float, limit: int = 50) -> list[GroupRow]:
        """Groups that one device finished and that were being generated in [t0, t1), oldest first."""
        return self._records(
            GroupRow,
            "FROM groups WHERE run_id = ? AND device = ? AND started_at < ? AND finished_at > ?"
            " ORDER BY group_id LIMIT ?",
            run_id,
            device,
            t1,
            t0,
            limit,
        )

    def logs_in(self, run_id: str, t0: float, t1: float, levels: tuple[str, ...], limit: int = 200) -> list[LogRow]:
        """Lines of some levels written in [t0, t1), oldest first; the last `limit` of them."""
        for level in levels:
            words.require("level", level, words.LOG_LEVELS)
        marks = ", ".join("?" * len(levels))
        return self._records(
            LogRow,
            f"FROM logs WHERE run_id = ? AND at >= ? AND at < ? AND level IN ({marks}) ORDER BY id DESC LIMIT ?",
            run_id,
            t0,
            t1,
            *levels,
            limit,
        )[::-1]

    def raw_gone(self, run_id: str, t0: float, t1: float) -> tuple[float, float] | None:
        """From and until when raw spans are incomplete inside [t0, t1); None where all are there."""
        first, last = self._query(
            "SELECT min(t0), max(t1) FROM raw_missing WHERE run_id = ? AND t0 < ? AND t1 > ?", run_id, t1, t0
        )[0]
        return None if first is None else (max(float(first), t0), min(float(last), t1))

    def _query(self, sql: str, *parameters: Any) -> list[Any]:
        raise NotImplementedError

    def _records(self, record: type[Record], tail: str, *parameters: Any) -> list[Record]:
        raise NotImplementedError
