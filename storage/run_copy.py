"""Takes the rows of one run from another database of the same schema into the telemetry, a chunk at a time.

It runs in the writer's thread between flushes, so that a large import holds nobody up. The run's own row comes last:
until then the run is not there, and what a crash leaves behind is cleared when the same run is taken in again. Who
hands a database in has checked it (`storage.exports.unpack`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from storage.batch import insert_sql
from storage.database import immediate
from storage.retention import CHUNK_ROWS, TABLES_OF_A_RUN, Retention
from storage.words import TERMINAL

CUT_OFF = "It was exported before it had ended."
"""Why a run that went on when it was exported is interrupted here."""

LAST_SIGN = """
    SELECT max(at) FROM (
        SELECT max(t1) AS at FROM spans WHERE run_id = ?1
        UNION ALL SELECT max(t_end) FROM steps WHERE run_id = ?1
        UNION ALL SELECT max(seen_at) FROM device_state WHERE run_id = ?1
        UNION ALL SELECT measured_until FROM runs WHERE run_id = ?1
        UNION ALL SELECT coalesce(started_at, created_at) FROM runs WHERE run_id = ?1
    )
"""
"""The last that was heard of such a run, unix seconds: when it ended as far as can be known."""

NUMBERED_BY_US = {"logs": ("id",)}
"""Table -> columns that the database numbers anew."""


class RunCopy:
    """One run on its way in. Made by whoever asks, advanced by the writer's thread; `done`, `error` say how it went."""

    def __init__(self, source: Path, *, run_id: str, as_run_id: str, imported_at: float) -> None:
        """source: a database with rows of `run_id` alone; as_run_id: its name here; imported_at: unix seconds."""
        self.run_id = as_run_id
        self.rows = 0
        self.done = False
        self.error: str | None = None
        self._source = source
        self._from_run_id = run_id
        self._imported_at = imported_at
        self._chunks: Iterator[int] | None = None

    def advance(self, connection: sqlite3.Connection, retention: Retention) -> None:
        """Take in one chunk. A fault ends the copy with its rows removed, and is told in `error`."""
        if self._chunks is None:
            if connection.execute("SELECT 1 FROM runs WHERE run_id = ?", [self.run_id]).fetchone():
                self.error, self.done = f"run {self.run_id!r} is here already", True
                return
            self._chunks = self._take(connection, retention)
        try:
            self.rows += next(self._chunks)
        except StopIteration:
            self.done = True
        except (sqlite3.Error, OSError, ValueError) as error:
            retention.delete_run(self.run_id)
            self.error = f"{type(error).__name__}: {error}"
            self.done = True

    def abandon(self, retention: Retention) -> None:
        """Take back what came in so far: the writer ends."""
        if self._chunks is not None:
            self._chunks.close()  # type: ignore[attr-defined]
            retention.delete_run(self.run_id)
        self.error, self.done = "the engine ended before all of it was taken in", True

    def _take(self, connection: sqlite3.Connection, retention: Retention) -> Iterator[int]:
        retention.delete_run(self.run_id)
        with closing(sqlite3.connect(f"{self._source.absolute().as_uri()}?mode=ro", uri=True)) as source:
            for table in TABLES_OF_A_RUN:
                for rows, sql in self._pages(source, table):
                    with immediate(connection):
                        connection.executemany(sql, rows)
                    if table == "spans":
                        retention.raw_rows += len(rows)
                    yield len(rows)
            with immediate(connection):
                connection.execute(*self._own_row(source))
            yield 1

    def _pages(self, source: sqlite3.Connection, table: str) -> Iterator[tuple[list[Sequence[Any]], str]]:
        names = [row[1] for row in source.execute(f"PRAGMA table_info({table})")]
        names = [name for name in names if name not in NUMBERED_BY_US.get(table, ())]
        at = names.index("run_id")
        sql = insert_sql(table, names, "INSERT")
        order = " ORDER BY id" if table in NUMBERED_BY_US else ""
        picked = ", ".join("?" if i == at else f'"{name}"' for i, name in enumerate(names))
        cursor = source.execute(
            f"SELECT {picked} FROM {table} WHERE run_id = ?{order}", [self.run_id, self._from_run_id]
        )
        while rows := cursor.fetchmany(CHUNK_ROWS):
            yield rows, sql

    def _own_row(self, source: sqlite3.Connection) -> tuple[str, list[Any]]:
        source.row_factory = sqlite3.Row
        row = dict(source.execute("SELECT * FROM runs WHERE run_id = ?", [self._from_run_id]).fetchone())
        row |= {"run_id": self.run_id, "imported_at": self._imported_at}
        if row["state"] not in TERMINAL:
            row |= {"state": "interrupted", "error": CUT_OFF}
            if row["ended_at"] is None:
                row["ended_at"] = source.execute(LAST_SIGN, [self._from_run_id]).fetchone()[0]
        return insert_sql("runs", list(row), "INSERT"), list(row.values())
