"""Read-only view of `telemetry.db` for pages and the command line. It cannot write, migrate or create anything.

Every method is one or two short queries and returns records; nothing is cached here. Open spans are in
`device_states`, not in `spans` or the rollups: who draws the present adds them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from storage import words
from storage.codec import columns, from_row
from storage.database import READ_TIMEOUT_S, TelemetryBroken, TelemetryMissing, explained, open_read_only
from storage.device_seconds import DeviceSeconds, device_seconds, device_seconds_quickly, finest_whole, span_times
from storage.filters import DecisionFilter, GroupFilter, joined
from storage.lease_sums import lease_counts, lease_outcomes, lease_verdicts
from storage.moments import MomentReads
from storage.records import (
    ComparisonRow,
    DecisionRow,
    DeviceRow,
    DeviceState,
    EngineRow,
    EvalRow,
    GroupRow,
    LeaseOutcome,
    LeaseRow,
    LeaseVerdict,
    LogRow,
    RollupWindow,
    RunRow,
    Span,
    SpanTimes,
    StateRow,
    StepRow,
)
from storage.rollups import NUM_COLUMNS, decode
from storage.run_list import FinalFigures, ListedRun, final_figures, list_stamp, listed_runs
from storage.schema import TELEMETRY

Record = TypeVar("Record")

STATES_AT_A_TIME = 500
"""About a megabyte; who replays a long run holds no more than this."""

_IN_WINDOW = "FROM spans WHERE run_id = ? AND t0 >= ? AND t0 < ? AND t1 > ?"


class TelemetryReader(MomentReads):
    """One read-only connection, used by the thread that made it.

    The constructor and every method raise TelemetryMissing, SchemaTooNew or TelemetryBroken (each with `.path`). A
    database that was deleted and made anew is noticed and opened again.
    """

    def __init__(self, path: Path, *, timeout_s: float = READ_TIMEOUT_S) -> None:
        self.path = Path(path)
        self._timeout_s = timeout_s
        self._open()

    def __enter__(self) -> TelemetryReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def one_moment(self) -> Iterator[None]:
        """Everything that is read inside is of one moment, whatever is committed meanwhile; to be left soon, because
        the write-ahead log grows until then."""
        with self._reading():
            self._connection.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    # Engine and runs

    def engine(self) -> EngineRow | None:
        """The life that started last, None if no engine ever ran."""
        found = self._records(EngineRow, "FROM engine ORDER BY started_at DESC LIMIT 1")
        return found[0] if found else None

    def engines(self) -> list[EngineRow]:
        """Every engine life, newest start first."""
        return self._records(EngineRow, "FROM engine ORDER BY started_at DESC")

    def runs(self, limit: int = 100, state: str | None = None) -> list[RunRow]:
        """Newest first; in one stored state if given."""
        if state is not None:
            words.require("state of a run", state, words.RUN_STATES)
        return self._records(
            RunRow,
            "FROM runs WHERE ?1 IS NULL OR state = ?1 ORDER BY created_at DESC, rowid DESC LIMIT ?2",
            state,
            limit,
        )

    def listed_runs(self, limit: int = 100_000) -> list[ListedRun]:
        """Runs in short, newest first: for a table of thousands."""
        with self._reading():
            return listed_runs(self._connection, limit)

    def final_figures(self, run_ids: Collection[str]) -> dict[str, FinalFigures]:
        """Run id -> what a table shows of its stored result; runs without one are left out."""
        with self._reading():
            return final_figures(self._connection, run_ids)

    def list_stamp(self) -> tuple[Any, ...]:
        """Another value as soon as a run came, went, ended or moved on."""
        with self._reading():
            return list_stamp(self._connection)

    def run(self, run_id: str) -> RunRow | None:
        found = self._records(RunRow, "FROM runs WHERE run_id = ?", run_id)
        return found[0] if found else None

    def same_work(self, work_key: str | None) -> list[RunRow]:
        """Finished runs whose tokens are the same work; none for no key."""
        return self._records(RunRow, "FROM runs WHERE work_key = ? AND state = 'finished'", work_key)

    def comparison(self, comparison: str) -> list[RunRow]:
        """Its runs in the order in which they were queued; empty when no run names it."""
        return self._records(RunRow, "FROM runs WHERE comparison = ? ORDER BY created_at, rowid", comparison)

    def comparisons(self, limit: int = 100) -> list[ComparisonRow]:
        """Newest first."""
        rows = self._query(
            "SELECT comparison, min(name), min(kind), min(created_at) AS began, count(*),"
            " count(*) FILTER (WHERE state = 'finished') FROM runs WHERE comparison IS NOT NULL"
            " GROUP BY comparison ORDER BY began DESC, min(rowid) DESC LIMIT ?",
            limit,
        )
        return [
            ComparisonRow(comparison=id_, name=name, kind=kind, created_at=began, runs=runs, finished=finished)
            for id_, name, kind, began, runs, finished in rows
        ]

    def devices(self, run_id: str) -> list[DeviceRow]:
        """In the order of their index."""
        return self._records(DeviceRow, "FROM devices WHERE run_id = ? ORDER BY device", run_id)

    # Time of devices

    def device_states(self, run_id: str) -> list[DeviceState]:
        """The open spans, in the order of devices."""
        return self._records(DeviceState, "FROM device_state WHERE run_id = ? ORDER BY device", run_id)

    def spans(self, run_id: str, t0: float, t1: float, limit: int = 20_000) -> list[Span]:
        """Raw spans (pieces of at most 60 s) that overlap [t0, t1), by start and device, unclipped."""
        return self._records(
            Span, f"{_IN_WINDOW} ORDER BY t0, device LIMIT ?", run_id, t0 - words.MAX_SPAN_S, t1, t0, limit
        )

    def span_times(self, run_id: str, t0: float, t1: float, limit: int = 20_000) -> SpanTimes:
        """The same as arrays, in no order."""
        with self._reading():
            return span_times(self._connection, run_id, t0, t1, limit)

    def count_spans(self, run_id: str, t0: float, t1: float, cap: int) -> int:
        """How many raw spans overlap [t0, t1), counted up to `cap`."""
        begun = "SELECT count(*) FROM (SELECT 1 FROM spans WHERE run_id = ? AND t0 >= ? AND t0 < ? LIMIT ?)"
        found = int(self._query(begun, run_id, t0, t1, cap)[0][0])
        if found >= cap:
            return cap
        # those that began before are looked through one by one, which a busy run makes long
        reach = f"SELECT count(*) FROM (SELECT 1 {_IN_WINDOW} LIMIT ?)"
        return found + int(self._query(reach, run_id, t0 - words.MAX_SPAN_S, min(t0, t1), t0, cap - found)[0][0])

    def rollup(self, run_id: str, res: int, t0: float, t1: float) -> RollupWindow:
        """The bins of a resolution (1, 10 or 60 s) that overlap [t0, t1); only those that exist."""
        if res not in words.RESOLUTIONS_S:
            raise ValueError(f"res must be one of {', '.join(map(str, words.RESOLUTIONS_S))}, got {res!r}")
        rows = self.rollup_blobs(run_id, res, t0, t1)
        if not rows:
            return RollupWindow(res=res, bins=np.zeros(0, np.int64), ms=np.zeros((0, 0, NUM_COLUMNS), np.int32))
        bins, layouts, blobs = zip(*rows, strict=True)
        return RollupWindow(res=res, bins=np.array(bins, np.int64), ms=decode(blobs, layouts))

    def rollup_blobs(self, run_id: str, res: int, t0: float, t1: float) -> list[tuple[int, int, bytes]]:
        """Bin, layout and bytes (see `storage.rollups.decode`) of the bins that overlap [t0, t1), ascending: for who
        keeps what it has unpacked."""
        return self._query(
            "SELECT bin, layout, data FROM rollups WHERE run_id = ? AND res = ? AND bin >= ? AND bin < ? ORDER BY bin",
            run_id,
            res,
            int(t0 // res),
            -int(-t1 // res),
        )

    def finest_rollup(self, run_id: str, start: float) -> int:
        """The finest of `words.RESOLUTIONS_S` whose bins are all there from `start` (unix seconds) on."""
        with self._reading():
            return finest_whole(self._connection, run_id, start)

    def kind_seconds(self, run_id: str, t0: float, t1: float, *, quick: bool = False) -> DeviceSeconds:
        """Device -> rollup column -> seconds inside [t0, t1), of closed spans; columns without time are absent.

        Exact, from raw spans clipped to the window. Where raw spans are gone (retention, overflow) rollups stand in:
        right to a millisecond for whole bins; a bin that the window cuts gives the share of it that lies inside.
        `quick` reads whole minutes from rollups though raw spans exist: right to a millisecond a column, and its cost
        does not grow with the number of spans; for figures that are refreshed all the time.
        """
        count = device_seconds_quickly if quick else device_seconds
        with self._reading():
            return count(self._connection, run_id, t0, t1)

    # Lending

    def decisions(self, run_id: str, *, limit: int = 200, before: int | None = None) -> list[DecisionRow]:
        """Newest first: the last `limit`, or with `before` the last ones with a smaller id."""
        return self._records(
            DecisionRow,
            "FROM decisions WHERE run_id = ?1 AND (?2 IS NULL OR id < ?2) ORDER BY id DESC LIMIT ?3",
            run_id,
            before,
            limit,
        )

    def decision(self, run_id: str, number: int) -> DecisionRow | None:
        found = self._records(DecisionRow, "FROM decisions WHERE run_id = ? AND id = ?", run_id, number)
        return found[0] if found else None

    def decisions_where(
        self, run_id: str, wanted: DecisionFilter, *, limit: int, before: int | None = None, after: int | None = None
    ) -> list[DecisionRow]:
        """Newest first: of those that are wanted the last `limit`, or the last ones with an id below `before`, or (with
        `after`) the next ones above it."""
        condition, values = joined(wanted.conditions(run_id))
        if before is not None:
            condition, values = f"{condition} AND id < ?", (*values, before)
        if after is not None:
            tail = f"FROM decisions WHERE {condition} AND id > ? ORDER BY {wanted.order} LIMIT ?"
            return self._records(DecisionRow, tail, *values, after, limit)[::-1]
        tail = f"FROM decisions WHERE {condition} ORDER BY {wanted.order} DESC LIMIT ?"
        return self._records(DecisionRow, tail, *values, limit)

    def count_decisions(self, run_id: str, wanted: DecisionFilter) -> int:
        """How many are wanted."""
        condition, values = joined(wanted.conditions(run_id))
        return int(self._query(f"SELECT count(*) FROM decisions WHERE {condition}", *values)[0][0])

    def leases(self, run_id: str) -> list[LeaseRow]:
        """Oldest first."""
        return self._records(LeaseRow, "FROM leases WHERE run_id = ? ORDER BY lease", run_id)

    def leases_open(self, run_id: str) -> list[LeaseRow]:
        """Leases that have not ended, oldest first."""
        return self._records(LeaseRow, "FROM leases WHERE run_id = ? AND released_at IS NULL ORDER BY lease", run_id)

    def leases_numbered(self, run_id: str, numbers: Collection[int]) -> list[LeaseRow]:
        """Those with these numbers, oldest first; numbers that do not exist are left out."""
        marks = ", ".join("?" * len(numbers))
        return self._records(
            LeaseRow, f"FROM leases WHERE run_id = ? AND lease IN ({marks}) ORDER BY lease", run_id, *numbers
        )

    def leases_in(self, run_id: str, t0: float, t1: float, limit: int) -> list[LeaseRow]:
        """Those that were granted or came home in [t0, t1), oldest first; the newest `limit` of them."""
        return self._records(
            LeaseRow,
            "FROM leases WHERE run_id = ?1 AND ((granted_at >= ?2 AND granted_at < ?3)"
            " OR (released_at >= ?2 AND released_at < ?3)) ORDER BY granted_at DESC, lease DESC LIMIT ?4",
            run_id,
            t0,
            t1,
            limit,
        )[::-1]

    def lease_counts(self, run_id: str) -> dict[str, dict[str, int]]:
        """Direction -> admitted (leases), refused (decisions) and delivered (leases that brought anything)."""
        with self._reading():
            return lease_counts(self._connection, run_id)

    def lease_outcomes(self, run_id: str) -> dict[str, LeaseOutcome]:
        """Direction -> what its leases came to; every direction is there."""
        with self._reading():
            return lease_outcomes(self._connection, run_id)

    def lease_verdicts(self, run_id: str) -> list[LeaseVerdict]:
        """What was expected of each measured lease and what it brought, oldest grant first."""
        with self._reading():
            return lease_verdicts(self._connection, run_id)

    def states(self, run_id: str) -> Iterator[StateRow]:
        """In their order, a few hundred in memory at a time."""
        after = -1
        while page := self._records(
            StateRow, "FROM states WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?", run_id, after, STATES_AT_A_TIME
        ):
            yield from page
            after = page[-1].seq

    # Learning

    def steps(self, run_id: str, since: int = 0) -> list[StepRow]:
        """Steps from number `since` on, that one included, in their order."""
        return self._records(StepRow, "FROM steps WHERE run_id = ? AND step >= ? ORDER BY step", run_id, since)

    def groups(
        self,
        run_id: str,
        step: int | None = None,
        state: str | None = None,
        search: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[GroupRow]:
        """Groups started last first; `search` is a text that prompt or responses contain, case ignored."""
        return self.groups_where(run_id, GroupFilter(step=step, state=state, search=search or ""), limit, offset)

    def groups_where(self, run_id: str, wanted: GroupFilter, limit: int, offset: int = 0) -> list[GroupRow]:
        """Groups that are wanted, in the order that is."""
        condition, values = joined(wanted.conditions(run_id))
        tail = f"FROM groups WHERE {condition} ORDER BY {wanted.order} LIMIT ? OFFSET ?"
        return self._records(GroupRow, tail, *values, limit, offset)

    def lag_histogram(self, run_id: str) -> dict[int, int]:
        """Lag in versions -> consumed groups."""
        sql = (
            "SELECT lag, count(*) FROM groups WHERE run_id = ? AND state = 'consumed' AND lag IS NOT NULL"
            " GROUP BY lag ORDER BY lag"
        )
        return {int(lag): int(count) for lag, count in self._query(sql, run_id)}

    def evals(self, run_id: str) -> list[EvalRow]:
        """By step, then name."""
        return self._records(EvalRow, "FROM evals WHERE run_id = ? ORDER BY step, name", run_id)

    def logs(self, run_id: str, limit: int = 200, after_id: int | None = None) -> list[LogRow]:
        """Oldest first: the last `limit` lines, or with `after_id` the first `limit` after that one."""
        if after_id is not None:
            return self._records(
                LogRow, "FROM logs WHERE run_id = ? AND id > ? ORDER BY id LIMIT ?", run_id, after_id, limit
            )
        return self._records(LogRow, "FROM logs WHERE run_id = ? ORDER BY id DESC LIMIT ?", run_id, limit)[::-1]

    # Inside

    def _open(self) -> None:
        self._connection = open_read_only(self.path, TELEMETRY, timeout_s=self._timeout_s)
        self._file = self._identity()

    def _identity(self) -> tuple[int, int]:
        try:
            found = os.stat(self.path)
        except FileNotFoundError as error:
            raise TelemetryMissing(self.path, "the telemetry was deleted") from error
        return found.st_dev, found.st_ino

    def _reading(self) -> AbstractContextManager[None]:
        if self._identity() != self._file:
            # Somebody emptied the data folder; the old file would answer for ever with the past.
            self._connection.close()
            self._open()
        return explained(self.path, TelemetryBroken)

    def _query(self, sql: str, *parameters: Any) -> list[Any]:
        with self._reading():
            return self._connection.execute(sql, parameters).fetchall()

    def _records(self, record: type[Record], tail: str, *parameters: Any) -> list[Record]:
        names = ", ".join(f'"{name}"' for name in columns(record))
        return [from_row(record, row) for row in self._query(f"SELECT {names} {tail}", *parameters)]
