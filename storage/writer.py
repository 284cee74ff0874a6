"""The engine's way into `telemetry.db`: one bounded queue, one daemon thread, one transaction a flush.

                     caller's threads                                    writer thread
    spans ------> raw rows (dropped and counted when full) --+
      +---------> unfolded spans -> RollupBuilder -----------+--> take everything -> BEGIN IMMEDIATE ... COMMIT
    steps, groups, leases, ...     (never dropped) ----------+      every flush_s, or at flush_rows, or on flush()
    open spans (only the newest of a device is kept) --------+      between flushes: one chunk of retention or import

Shutdown: `close` writes what waits and joins the thread within its deadline. A crash of the process loses at most the
last flush interval. A failure of the thread is remembered and raised by every later call: telemetry never stops in
silence. Nobody else writes this database, so nothing here retries.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from storage import words
from storage.batch import SPAN_SQL, Batch, Queue, insert_sql
from storage.codec import column_values, columns, to_row
from storage.database import StorageError, connect_for_writing, immediate, open_for_writing
from storage.records import (
    DecisionRow,
    DeviceRow,
    DeviceState,
    EngineRow,
    EvalRow,
    GroupRow,
    LeaseRow,
    LogRow,
    RunRow,
    Span,
    StateRow,
    StepRow,
    WriterStats,
)
from storage.retention import SWEEP_EVERY_S, Limits, Retention, record_missing
from storage.rollup_store import RollupStore
from storage.run_copy import RunCopy
from storage.schema import TELEMETRY

CLOSE_TIMEOUT_S = 10.0
"""A full queue is written in about two seconds; five times that on a busy disk."""

RUN_NEVER_NULL = ("name", "kind", "arm", "job", "excluded", "guards")
"""Fields of a run that its table declares NOT NULL; each has a default there."""

STATE_SQL = insert_sql("device_state", ("run_id", *columns(DeviceState)))


class WriterFailed(StorageError):
    """The writer thread died; `.reason` says of what. Nothing after that is stored."""


class TelemetryWriter:
    """Writes telemetry; every method may be called from any thread and returns without touching the disk.

    clock: unix seconds, for retention only. max_queue_rows: raw spans beyond it are dropped (their rollups are kept);
    other rows are admitted up to twice that, then RuntimeError. Creates the folder and migrates the database: raises
    SchemaTooNew or DatabaseBroken.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        max_queue_rows: int = 200_000,
        flush_s: float = 0.2,
        flush_rows: int = 1000,
        limits: Limits | None = None,
    ) -> None:
        self.path = Path(path)
        self._clock = clock
        self._flush_s = flush_s
        self._flush_rows = flush_rows
        self._limits = limits or Limits()
        self._queue = Queue(max_queue_rows)
        self._changed = threading.Condition()
        self._flush_asked = False
        self._copies: deque[RunCopy] = deque()
        self._closing = False
        self._failure: BaseException | None = None
        self._put, self._written = 0, 0
        self._rows_written = 0
        self._thread_cpu_s = 0.0
        open_for_writing(self.path, TELEMETRY).close()
        self._thread = threading.Thread(target=self._run, name="telemetry-writer", daemon=True)
        self._thread.start()

    # What the engine reports

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is reported inside lands in the same transaction, so no reader sees half of it."""
        with self._changed:
            yield

    def spans(self, spans: Sequence[Span]) -> None:
        """Closed spans, each reported once. A second span of a device with the same start breaks the ledger: the
        database refuses it and the writer fails."""
        with self._reporting():
            self._queue.put_spans(spans)

    def device_states(self, run_id: str, states: Sequence[DeviceState]) -> None:
        """The open spans of a run's devices; replaces what was known of these devices."""
        with self._reporting():
            self._queue.put_states([(run_id, *to_row(state)) for state in states])

    def devices(self, run_id: str, devices: Sequence[DeviceRow]) -> None:
        """Where a run's devices are."""
        self._rows(insert_sql("devices", ("run_id", *columns(DeviceRow))), [(run_id, *to_row(row)) for row in devices])

    def step(self, step: StepRow) -> None:
        """A step; reporting the same number again replaces it."""
        self._rows(insert_sql("steps", columns(StepRow)), [to_row(step)])

    def groups(self, groups: Sequence[GroupRow]) -> None:
        """Consumed or excluded groups; reporting the same id again replaces it."""
        self._rows(insert_sql("groups", columns(GroupRow)), [to_row(group) for group in groups])

    def decisions(self, decisions: Sequence[DecisionRow]) -> None:
        """Decisions about lending; reporting the same id again replaces it."""
        self._rows(insert_sql("decisions", columns(DecisionRow)), [to_row(row) for row in decisions])

    def leases(self, leases: Sequence[LeaseRow]) -> None:
        """Leases as they are now; reporting the same number again replaces the whole row."""
        self._rows(insert_sql("leases", columns(LeaseRow)), [to_row(row) for row in leases])

    def states(self, states: Sequence[StateRow]) -> None:
        """States of the policy, kept as long as raw spans; reporting the same number again replaces it."""
        self._rows(insert_sql("states", columns(StateRow)), [to_row(row) for row in states])

    def eval(self, row: EvalRow) -> None:
        """An evaluation; the same run, step and name again replaces it."""
        self._rows(insert_sql("evals", columns(EvalRow)), [to_row(row)])

    def log(self, row: LogRow) -> None:
        """A line of a run's log; the database numbers it."""
        self._rows(insert_sql("logs", columns(LogRow)), [to_row(row)])

    def run(self, run_id: str, **fields: Any) -> None:
        """Insert or update a run; `fields` are those of RunRow. Raises ValueError for others, for unknown
        states and for None where a run always has a value."""
        if "state" in fields:
            words.require("state of a run", fields["state"], words.RUN_STATES)
        if nulls := [name for name in RUN_NEVER_NULL if name in fields and fields[name] is None]:
            raise ValueError(f"{', '.join(nulls)} of a run must not be None; leave out what is not known")
        self._upsert("runs", RunRow, "run_id", run_id, fields)

    def engine(self, engine_id: str, **fields: Any) -> None:
        """Insert or update an engine's life; `fields` are those of EngineRow. Raises ValueError for others."""
        if "state" in fields:
            words.require("state of an engine", fields["state"], words.ENGINE_STATES)
        self._upsert("engine", EngineRow, "engine_id", engine_id, fields)

    def delete_run(self, run_id: str) -> None:
        """Delete everything of a run, in order with what was reported before. Report nothing for it afterwards."""
        with self._reporting():
            self._queue.put_delete(run_id)

    def take_in(self, copy: RunCopy) -> None:
        """Take a run in from another database, in chunks between flushes; `copy.done` says when that has ended."""
        with self._changed:
            self._check()
            self._copies.append(copy)
            self._changed.notify_all()

    # Control

    def flush(self, timeout_s: float = 5.0) -> None:
        """Return when everything reported so far is committed. Raises TimeoutError or WriterFailed."""
        with self._changed:
            self._check()
            target, self._flush_asked = self._put, True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._written >= target or self._failure, timeout_s)
            self._check_failure()
            if self._written < target:
                raise TimeoutError(
                    f"{self.path}: the telemetry writer did not commit within {timeout_s:g} s; "
                    f"{self._queue.depth} rows wait"
                )

    def receipt(self) -> int:
        """Stands for everything reported so far; see `stored`."""
        with self._changed:
            return self._put

    def stored(self, receipt: int) -> bool:
        """Is everything reported before the receipt committed? Never waits; a flush is under way when it is not."""
        with self._changed:
            self._check_failure()
            if self._written < receipt:
                self._flush_asked = True
                self._changed.notify_all()
            return self._written >= receipt

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Write what waits and end the thread. Raises TimeoutError or WriterFailed; closing again does nothing."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"{self.path}: the telemetry writer did not end within {timeout_s:g} s")
        self._check_failure()

    @property
    def stats(self) -> WriterStats:
        """How it keeps up; still readable after a failure."""
        with self._changed:
            return WriterStats(
                rows_written=self._rows_written,
                spans_dropped=self._queue.spans_dropped,
                queue_depth=self._queue.depth,
                flush_lag_s=self._queue.age_s,
                thread_cpu_s=self._thread_cpu_s,
            )

    # Inside: callers

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        with self._changed:
            self._check()
            yield
            self._put += 1
            if self._queue.depth >= self._flush_rows:
                self._changed.notify_all()

    def _rows(self, sql: str, rows: list[tuple[Any, ...]]) -> None:
        with self._reporting():
            self._queue.put_rows(sql, rows)

    def _upsert(self, table: str, record: type, key: str, key_value: str, fields: dict[str, Any]) -> None:
        values = {key: key_value, **column_values(record, fields)}
        names = ", ".join(f'"{name}"' for name in values)
        updates = ", ".join(f'"{name}" = excluded."{name}"' for name in values)
        sql = (
            f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(values))})"
            f" ON CONFLICT ({key}) DO UPDATE SET {updates}"
        )
        self._rows(sql, [tuple(values.values())])

    def _check(self) -> None:
        self._check_failure()
        if self._closing:
            raise RuntimeError(f"{self.path}: the telemetry writer is closed")

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise WriterFailed(self.path, f"telemetry writer failed: {self._failure!r}") from self._failure

    # Inside: the writer thread

    def _run(self) -> None:
        try:
            connection = connect_for_writing(self.path)
            try:
                self._loop(connection)
            finally:
                connection.close()
        except BaseException as error:  # remembered here, raised at the next call of the engine
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _loop(self, connection: sqlite3.Connection) -> None:
        store = RollupStore(connection)
        retention = Retention(connection, self._limits)
        sweep: Iterator[int] = iter(())
        swept_at = -float("inf")
        while True:
            with self._changed:
                self._changed.wait_for(self._is_due, self._flush_s)
                self._flush_asked = False
                batch, target, closing = self._queue.take(), self._put, self._closing
            rows = _write(connection, batch, store, retention)
            with self._changed:
                self._queue.done(batch)
                self._written = target
                self._rows_written += rows
                self._thread_cpu_s = time.thread_time()
                self._changed.notify_all()
            if closing:
                for copy in self._copies:
                    copy.abandon(retention)
                return
            if self._copies:
                # retention waits: it would take what is coming in for what is too old
                self._advance(connection, retention)
                continue
            if self._clock() - swept_at >= SWEEP_EVERY_S:
                swept_at, sweep = self._clock(), retention.sweep(self._clock())
            next(sweep, None)

    def _advance(self, connection: sqlite3.Connection, retention: Retention) -> None:
        copy = self._copies[0]
        copy.advance(connection, retention)
        if copy.done:
            self._copies.popleft()

    def _is_due(self) -> bool:
        return bool(self._closing or self._copies) or self._flush_asked or self._queue.depth >= self._flush_rows


def _write(connection: sqlite3.Connection, batch: Batch, store: RollupStore, retention: Retention) -> int:
    """Commit a batch, returning its rows. Deleting a run ends the transaction before it, for it may take long."""
    rows = 0
    operations = list(batch.operations)
    while operations or batch.additions or batch.states or batch.dropped:
        cut = next((i for i, operation in enumerate(operations) if operation.deletes), len(operations))
        with immediate(connection):
            for operation in operations[:cut]:
                connection.executemany(operation.sql, operation.rows)
                rows += len(operation.rows)
                retention.raw_rows += len(operation.rows) if operation.sql == SPAN_SQL else 0
            if cut == len(operations):
                rows += store.add(batch.additions) + len(batch.states)
                connection.executemany(STATE_SQL, batch.states)
                for run_id, (t0, t1, spans) in batch.dropped.items():
                    record_missing(connection, run_id, "overflow", t0, t1, spans)
                return rows
        retention.delete_run(operations[cut].deletes)
        store.forget(operations[cut].deletes)
        operations = operations[cut + 1 :]
    return rows
